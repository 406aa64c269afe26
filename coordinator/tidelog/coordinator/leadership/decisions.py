"""What a broker should do next about the shards, as a pure function of what it knows.

`decide` looks at the cluster's picture and at what this broker leads, and names at most one move for each shard:

    leads it   key `leaders/<s>` says      epoch stored      move
    --------   -------------------------   ---------------   ---------------------------------------------
    yes        this process                mine              release it if it should be elsewhere, else stay
    yes        this process, old lease     mine              reassert: put the key under the lease of today
    yes        nobody                      mine              reassert: it was the lease that ended, not us
    yes        nobody, or another          above mine        abandon: another has begun
    no         this process                                  give back: the key is deleted
    no         this broker's last process                    take: a restart comes back to its shards at once
    no         nobody                                        take, if it should be here
    no         a process that is gone, no lease              the same (`stale_leaders`)

Where a shard should be is `rendezvous.assign`'s to say, over brokers that may be given shards (`candidates`). A broker
that is not eligible yet is given none; it keeps those that it has.

After a loss of the whole store everybody registers anew, one after the other. So who comes back takes nothing for a
while (`may_take`), lest the first take what the others lead and are about to reassert.

Nothing is taken, released or written while the key-value store is not reachable, not trusted, or this broker is not
registered in it. The log, not the key, says who leads: so a leader that cannot ask goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.coordinator.leadership.cluster_picture import ClusterPicture, EpochKey, Led
from tidelog.coordinator.leadership.rendezvous import assign
from tidelog.coordinator.leadership.stale_leaders import is_stale


@dataclass(frozen=True, slots=True)
class Take:
    """Lead `shard` in the epoch after `stored`. `former`: the key to be replaced, of this broker's last process or of
    a process that is gone."""

    shard: int
    stored: EpochKey | None
    former: Led | None = None

    @property
    def epoch(self) -> int:
        return (self.stored.epoch if self.stored else 0) + 1


@dataclass(frozen=True, slots=True)
class Release:
    """Let go of `shard` in order, and delete the key of `epoch`."""

    shard: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Abandon:
    """Another leads `shard`."""

    shard: int


@dataclass(frozen=True, slots=True)
class Reassert:
    """Say again that `shard` is led here in `epoch`. `former`: our key under a lease that is not ours any more."""

    shard: int
    epoch: int
    former: Led | None = None


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Our key of `shard` in `epoch` says what is not so: delete it."""

    shard: int
    epoch: int


Move = Take | Release | Abandon | Reassert | GiveBack


@dataclass(frozen=True)
class Standing:
    """What a broker knows of itself. `may_act`: the store is reached and trusted, and this process is registered under
    `lease_id`; `may_take`: it may take what nobody leads. `led`: the epoch of each shard led here. `busy`: shards on
    the move. `resting`: shards that could not be led a moment ago."""

    broker_id: str
    incarnation: str
    lease_id: int
    may_act: bool
    may_take: bool = True
    stopping: bool = False
    led: Mapping[int, int] = field(default_factory=dict)
    busy: frozenset[int] = frozenset()
    resting: frozenset[int] = frozenset()


def decide(picture: ClusterPicture, me: Standing, shards: Sequence[int]) -> tuple[Move, ...]:
    """The moves to begin now."""
    wanted = preferred(picture, shards)
    moves = (_decide_shard(picture, me, shard, wanted.get(shard)) for shard in sorted({*shards, *me.led}))
    return tuple(move for move in moves if move is not None and move.shard not in me.busy)


def preferred(picture: ClusterPicture, shards: Sequence[int]) -> Mapping[int, str]:
    """Who should lead each shard, the same for all who see this picture."""
    leaders = {shard: led.record.broker_id for shard, led in picture.leaders.items()}
    return assign(shards, candidates(picture), leaders)


def candidates(picture: ClusterPicture) -> Sequence[str]:
    """Ids of the brokers that may be given shards: those that are eligible and neither stopping nor draining. If there
    is none, not being eligible counts no more; and if all are draining, neither does that, since a shard that nobody
    leads helps nobody."""
    going_on = [record for record in picture.brokers.values() if not record.stopping]
    staying = [record for record in going_on if record.broker_id not in picture.draining]
    eligible = [record for record in staying if record.eligible]
    return sorted(record.broker_id for record in eligible or staying or going_on)


def _decide_shard(picture: ClusterPicture, me: Standing, shard: int, wanted: str | None) -> Move | None:
    held = picture.leaders.get(shard)
    if shard in me.led:
        return _decide_led(picture, me, shard, held, wanted)
    if not me.may_act:
        return None
    if held is not None and _is_mine(held, me):
        return GiveBack(shard, held.record.epoch)
    if me.stopping or shard in me.resting:
        return None
    if wanted == me.broker_id and me.may_take and (held is None or is_stale(held, picture.brokers)):
        return Take(shard, picture.epochs.get(shard), former=held)
    if held is not None and held.record.broker_id == me.broker_id and me.broker_id not in picture.draining:
        return Take(shard, picture.epochs.get(shard), former=held)
    return None


def _decide_led(
    picture: ClusterPicture, me: Standing, shard: int, held: Led | None, wanted: str | None
) -> Release | Reassert | Abandon | None:
    epoch, stored = me.led[shard], _stored_epoch(picture, shard)
    if stored > epoch:
        return Abandon(shard)
    if stored < epoch or not me.may_act:
        return None
    if held is not None and not _is_mine(held, me):
        return Abandon(shard)
    if me.stopping or _should_be_elsewhere(picture, me, wanted):
        return Release(shard, epoch)
    if held is None or held.item.lease_id != me.lease_id:
        return Reassert(shard, epoch, former=held)
    return None


def _should_be_elsewhere(picture: ClusterPicture, me: Standing, wanted: str | None) -> bool:
    """A broker that is not eligible yet came back to what it had; that it is not a candidate is no reason to go."""
    if wanted is None or wanted == me.broker_id:
        return False
    record = picture.brokers.get(me.broker_id)
    return me.broker_id in picture.draining or (record is not None and record.eligible)


def _is_mine(held: Led, me: Standing) -> bool:
    return (held.record.broker_id, held.record.incarnation) == (me.broker_id, me.incarnation)


def _stored_epoch(picture: ClusterPicture, shard: int) -> int:
    stored = picture.epochs.get(shard)
    return stored.epoch if stored else 0
