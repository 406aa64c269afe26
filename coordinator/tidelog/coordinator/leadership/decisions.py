"""Decides what a broker does next about the shards: a pure function of what it knows.

`decide` takes the cluster's snapshot and the shards that this broker leads, and returns at most one move per shard:

    leads it   key `leaders/<s>` names     epoch stored      move
    --------   -------------------------   ---------------   ---------------------------------------------
    yes        this process                mine              release if another broker should lead it, else none
    yes        this process, old lease     mine              reassert: put the key under the current lease
    yes        nobody                      mine              reassert: only the lease has ended
    yes        nobody, or another          above mine        abandon: another broker has begun a later epoch
    no         this process                                  give back: delete the key
    no         this broker's last process                    take: a restarted broker gets its shards back at once
    no         nobody                                        take, if this broker should lead it
    no         a process that is gone, without a lease       the same (`is_stale`)

`rendezvous.assign` decides which broker should lead a shard, among the brokers that may get shards (`candidates`). A
broker that is not yet eligible gets no shards and keeps those it has.

After the store was lost, all brokers register again, one after the other. A broker that returns takes nothing for a
while (`may_take`), because it could take shards whose leaders are about to reassert them.

A broker takes, releases and writes nothing while the store is unreachable or not trusted or holds no registration of
it. The log, not the key, decides who leads, so a leader keeps running meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.coordinator.cluster.cluster_keys import BrokerRecord
from tidelog.coordinator.leadership.cluster_snapshot import ClusterSnapshot, EpochKey, LeaderKey
from tidelog.coordinator.leadership.rendezvous import assign


@dataclass(frozen=True, slots=True)
class Take:
    """Lead `shard` in the epoch after `stored`. `former`: the key to replace, of this broker's last process or of a
    process that is gone."""

    shard: int
    stored: EpochKey | None
    former: LeaderKey | None = None

    @property
    def epoch(self) -> int:
        return (self.stored.epoch if self.stored else 0) + 1


@dataclass(frozen=True, slots=True)
class Release:
    """Commit and answer what `shard` has accepted, stop leading it, and delete the key of `epoch`."""

    shard: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Abandon:
    """Stop leading `shard` at once: another broker leads it."""

    shard: int


@dataclass(frozen=True, slots=True)
class Reassert:
    """Put the key of `shard`, led here in `epoch`, again. `former`: our key under a lease that has ended."""

    shard: int
    epoch: int
    former: LeaderKey | None = None


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Delete our key of `shard` in `epoch`: this process does not lead the shard."""

    shard: int
    epoch: int


Move = Take | Release | Abandon | Reassert | GiveBack


@dataclass(frozen=True)
class OwnState:
    """What a broker knows about itself. `may_act`: the store is reachable and trusted, and this process is registered
    under `lease_id`. `may_take`: it may take shards that nobody leads. `led`: the epoch of each shard led here. `busy`:
    shards with a move in progress. `resting`: shards whose last move failed a moment ago."""

    broker_id: str
    incarnation: str
    lease_id: int
    may_act: bool
    may_take: bool = True
    stopping: bool = False
    led: Mapping[int, int] = field(default_factory=dict)
    busy: frozenset[int] = frozenset()
    resting: frozenset[int] = frozenset()


def decide(snapshot: ClusterSnapshot, me: OwnState, shards: Sequence[int]) -> tuple[Move, ...]:
    """The moves to begin now."""
    wanted = assign(
        shards,
        candidates(snapshot.brokers.values(), snapshot.draining),
        {shard: key.record.broker_id for shard, key in snapshot.leaders.items()},
    )
    moves = (_decide_shard(snapshot, me, shard, wanted.get(shard)) for shard in sorted({*shards, *me.led}))
    return tuple(move for move in moves if move is not None and move.shard not in me.busy)


def candidates(brokers: Iterable[BrokerRecord], draining: Collection[str]) -> Sequence[str]:
    """The ids of the brokers that may get shards: those that are eligible and neither stopping nor draining. If there
    is none, brokers that are not eligible count too; if all are draining, these count too, so that each shard has a
    leader."""
    running = [record for record in brokers if not record.stopping]
    staying = [record for record in running if record.broker_id not in draining]
    eligible = [record for record in staying if record.eligible]
    return sorted(record.broker_id for record in eligible or staying or running)


def is_stale(key: LeaderKey, brokers: Mapping[str, BrokerRecord]) -> bool:
    """Whether `key` would block its shard for ever: it is under no lease, and its process is not among the live
    `brokers`. Older versions could write such keys, and so can an operator."""
    if key.item.lease_id:
        return False
    live = brokers.get(key.record.broker_id)
    return live is None or live.incarnation != key.record.incarnation


def _decide_shard(snapshot: ClusterSnapshot, me: OwnState, shard: int, wanted: str | None) -> Move | None:
    key = snapshot.leaders.get(shard)
    if shard in me.led:
        return _decide_led(snapshot, me, shard, key, wanted)
    if not me.may_act:
        return None
    if key is not None and _is_mine(key, me):
        return GiveBack(shard, key.record.epoch)
    if me.stopping or shard in me.resting:
        return None
    free = key is None or is_stale(key, snapshot.brokers)
    my_last = key is not None and key.record.broker_id == me.broker_id and me.broker_id not in snapshot.draining
    if my_last or (wanted == me.broker_id and me.may_take and free):
        return Take(shard, snapshot.epochs.get(shard), former=key)
    return None


def _decide_led(
    snapshot: ClusterSnapshot, me: OwnState, shard: int, key: LeaderKey | None, wanted: str | None
) -> Release | Reassert | Abandon | None:
    epoch, stored = me.led[shard], _stored_epoch(snapshot, shard)
    if stored > epoch:
        return Abandon(shard)
    if stored < epoch or not me.may_act:
        return None
    if key is not None and not _is_mine(key, me):
        return Abandon(shard)
    if me.stopping or _should_be_elsewhere(snapshot, me, wanted):
        return Release(shard, epoch)
    if key is None or key.item.lease_id != me.lease_id:
        return Reassert(shard, epoch, former=key)
    return None


def _should_be_elsewhere(snapshot: ClusterSnapshot, me: OwnState, wanted: str | None) -> bool:
    """A broker that is not yet eligible is no candidate, but it keeps the shards it came back to."""
    if wanted is None or wanted == me.broker_id:
        return False
    record = snapshot.brokers.get(me.broker_id)
    return me.broker_id in snapshot.draining or (record is not None and record.eligible)


def _is_mine(key: LeaderKey, me: OwnState) -> bool:
    return (key.record.broker_id, key.record.incarnation) == (me.broker_id, me.incarnation)


def _stored_epoch(snapshot: ClusterSnapshot, shard: int) -> int:
    stored = snapshot.epochs.get(shard)
    return stored.epoch if stored else 0
