"""Follows the cluster in the key-value store and answers from memory what this broker knows of it (`ClusterView`).

It owns the mirror of the cluster's keys, this broker's registration, and the judgement whether the store can be
trusted. `refresh` takes a new snapshot of the three; `Leadership` calls it before each decision.

The store is trusted while it holds the cluster's identity, holds no epoch below one that is led here, and has assigned
no epoch that a log had already seen. While it is not trusted, `trouble` says why and what to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.coordinator.cluster.cluster_keys import BrokerRecord, ClusterKeys, LeaderRecord, PeerSecret
from tidelog.coordinator.kv.key_value import KeyValueStore
from tidelog.coordinator.leadership.cluster_snapshot import ClusterSnapshot, SnapshotDecoder
from tidelog.coordinator.leadership.mirror import KeyMirror
from tidelog.coordinator.leadership.registration import Registration
from tidelog.coordinator.leadership.shard_host import CoordinatorHealth
from tidelog.coordinator.leadership.shard_moves import ShardMoves
from tidelog.coordinator.leadership.store_trust import StoreTrust
from tidelog.coordinator.leadership.tasks import OnFailure, first_of
from tidelog.storage.runtime import Runtime


@dataclass(frozen=True, slots=True)
class LeadershipSettings:
    """`cluster_id`: the identity that the store must hold. `stop_timeout_s`: the time limit for stopping."""

    cluster_id: str
    lease_ttl_s: float = 6.0
    rebalance_delay_s: float = 3.0
    stop_timeout_s: float = 30.0


class ClusterFollower:
    """Implements `ClusterView`. `moves` knows the shards that are led here. `on_change` is called when a `refresh` may
    find something new, `on_failure` with a defect that ended a task."""

    def __init__(
        self,
        kv: KeyValueStore,
        keys: ClusterKeys,
        me: BrokerRecord,
        moves: ShardMoves,
        runtime: Runtime,
        settings: LeadershipSettings,
        *,
        on_change: Callable[[], None],
        on_failure: OnFailure,
    ) -> None:
        self._kv = kv
        self._moves = moves
        self._runtime = runtime
        self._decoder = SnapshotDecoder(keys)
        self._trust = StoreTrust(settings.cluster_id, self._decoder)
        self._mirror = KeyMirror(kv, keys.root, runtime, accepts=self._trust.accepts, on_failure=on_failure)
        self._mirror.on_change(on_change)
        self._changed = asyncio.Event()
        self.registration = Registration(
            kv,
            keys,
            me,
            runtime,
            lease_ttl_s=settings.lease_ttl_s,
            rebalance_delay_s=settings.rebalance_delay_s,
            may_register=self._may_register,
            on_change=on_change,
            on_failure=on_failure,
        )
        self.snapshot = ClusterSnapshot()
        self.trouble = ""

    async def start(self) -> None:
        """Read the cluster's keys and begin to register. Raises `Unavailable`, `Denied`."""
        await self._mirror.start()
        self.refresh()
        self.registration.start()

    async def aclose(self) -> None:
        """End the lease and stop following; the last snapshot stays."""
        await self.registration.aclose()
        await self._mirror.aclose()

    def refresh(self) -> None:
        """Take a snapshot of the mirror, and judge it."""
        before, health = self.snapshot, self.health()
        self.snapshot = self._decoder.snapshot(self._mirror.items, self._mirror.revision)
        if self.snapshot.revision < before.revision:
            self._moves.forget_revisions()
            self._trust.forget_fenced()
        now_s = self._runtime.clock.monotonic()
        led = self._moves.settled(self.snapshot.revision)
        self.trouble = self._trust.trouble(self.snapshot, led, rejected=self._mirror.rejected, now_s=now_s)
        self._check_registration()
        if self.snapshot != before or self.health() != health:
            self._changed.set()
            self._changed = asyncio.Event()

    def note_fenced(self, shard: int, revision: int) -> None:
        """The log of `shard` has already seen the epoch that the store assigned at `revision`."""
        self._trust.note_fenced(shard, revision, self._runtime.clock.monotonic())

    @property
    def may_act(self) -> bool:
        """Whether the store is reachable and trusted, and the snapshot shows this broker's registration."""
        registered = self.registration.held and self.snapshot.revision >= self.registration.revision
        return registered and self._reachable and not self.trouble

    def me(self) -> BrokerRecord:
        return self.registration.record

    def brokers(self) -> Sequence[BrokerRecord]:
        return tuple(record for _, record in sorted(self.snapshot.brokers.items()))

    def peer_secret(self) -> PeerSecret | None:
        """The secret that the cluster's brokers share, None if the store holds none."""
        return self.snapshot.peer_secret

    def draining(self) -> frozenset[str]:
        return self.snapshot.draining

    def leaders(self) -> Mapping[int, LeaderRecord]:
        return {shard: key.record for shard, key in self.snapshot.leaders.items()}

    def leader_of(self, shard: int) -> BrokerRecord | None:
        key = self.snapshot.leaders.get(shard)
        return self.snapshot.brokers.get(key.record.broker_id) if key else None

    def surely_leads(self, shard: int, epoch: int) -> bool:
        under_lease = self.snapshot.epoch_under(shard, self.registration.lease_id) == epoch
        return under_lease and self.registration.certain and not self.trouble

    def health(self) -> CoordinatorHealth:
        reason = self.trouble
        if not reason and not self._reachable:
            reason = (
                "etcd cannot be reached: this broker keeps the shards that it leads by their logs, takes none, and "
                "does not hear of other leaders"
            )
        return CoordinatorHealth(reachable=self._reachable, trusted=not self.trouble, reason=reason)

    async def changed(self, timeout_s: float) -> None:
        await first_of(self._changed.wait(), self._runtime.clock.sleep(timeout_s))

    @property
    def _reachable(self) -> bool:
        return self.registration.reachable and (self._mirror.rejected or not self._mirror.stale)

    def _check_registration(self) -> None:
        """Compare the snapshot with our record, unless the snapshot is older than the record."""
        registration = self.registration
        if registration.lease_id == 0 or self.snapshot.revision < registration.revision or self._mirror.stale:
            return
        record = self.snapshot.brokers.get(registration.record.broker_id)
        if record is None:
            registration.register_again()
        else:
            registration.check_incarnation(record.incarnation)

    async def _may_register(self) -> bool:
        """Whether the store is trusted. It may have been wiped: then the lease is lost together with all keys."""
        if self._mirror.incarnation != await self._kv.incarnation() or self.registration.revision:
            await self._mirror.refresh()
        self.refresh()
        return not self.trouble
