"""Which shards this broker leads: it follows the key-value store, decides, and has its host lead and release them.

    await leadership.start()                # raises Unavailable
    leadership.leader_of(shard)             # a `ClusterView`
    reason = await leadership.must_stop()   # returns only if this process has to end, as another has its broker id
    await leadership.aclose()               # releases all shards, then ends the lease

One loop wakes at every change of the mirror, of the registration, and at the end of every move; it reads a picture,
asks `decisions.decide` what to do, and begins those moves. It never waits for one, so it is at rest when
nothing changes: the store hears of a broker at rest by its keep-alives alone, and the mirror's rare checks.

The store is believed (`health().trusted`) while it names the cluster, knows no epoch below one that is led here, and no
log has seen a later epoch than it gave out. Else this broker keeps what it leads and takes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.coordinator.cluster.cluster_keys import BrokerRecord, ClusterKeys, LeaderRecord, PeerSecret
from tidelog.coordinator.kv.key_value import KeyValueStore
from tidelog.coordinator.leadership import decisions
from tidelog.coordinator.leadership.cluster_picture import ClusterPicture, PictureReader
from tidelog.coordinator.leadership.decisions import Standing, decide
from tidelog.coordinator.leadership.mirror import KeyMirror
from tidelog.coordinator.leadership.registration import Registration, RegistrationSettings
from tidelog.coordinator.leadership.shard_host import CoordinatorHealth, ShardHost
from tidelog.coordinator.leadership.shard_moves import ShardMoves
from tidelog.coordinator.leadership.store_trust import StoreTrust
from tidelog.coordinator.leadership.waiting import first_of, spawn
from tidelog.storage.errors import NotFound, Unavailable
from tidelog.storage.runtime import Runtime

LOOK_EVERY_S = 1.0
"""The host does not tell when a shard was fenced; what it leads is looked at this often. No request."""
UNABLE_S = 20.0
"""How long a broker that could not claim shards is given none, so that others try."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeadershipSettings:
    """`cluster_id`: the identity the store must have. `stop_timeout_s`: how long stopping may take in all."""

    cluster_id: str
    lease_ttl_s: float = 6.0
    rebalance_delay_s: float = 3.0
    stop_timeout_s: float = 30.0


class Leadership:
    """Implements `ClusterView`. `me`: its incarnation new, neither eligible nor stopping. `shards` are asked for at
    each decision, for their number can grow."""

    def __init__(
        self,
        kv: KeyValueStore,
        keys: ClusterKeys,
        host: ShardHost,
        me: BrokerRecord,
        shards: Callable[[], Sequence[int]],
        runtime: Runtime,
        settings: LeadershipSettings,
    ) -> None:
        self._kv = kv
        self._keys = keys
        self._host = host
        self._shards = shards
        self._runtime = runtime
        self._settings = settings
        self._reader = PictureReader(keys)
        self._trust = StoreTrust(settings.cluster_id, self._reader)
        self._mirror = KeyMirror(kv, keys.root, runtime, believes=self._trust.believes, on_failure=self._fail)
        self._registration = Registration(
            kv,
            keys,
            me,
            runtime,
            RegistrationSettings(settings.lease_ttl_s, settings.rebalance_delay_s),
            may_register=self._may_register,
            on_change=self.moved,
            on_failure=self._fail,
        )
        self._moves = ShardMoves(kv, keys, host, me, runtime, self)
        self._picture = ClusterPicture()
        self._trouble = ""
        self._stopping = False
        self._defect = ""
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        self._must_stop = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the cluster's state, and begin. Does not wait to be registered. Raises `Unavailable`, `Denied`."""
        self._mirror.on_change(self.moved)
        await self._mirror.start()
        self._look()
        self._registration.start()
        self._loop = spawn(self._run(), self._fail)

    async def hand_over(self) -> None:
        """Say that we stop, and release every shard, few side by side; in bounded time. The view stays current, so that
        requests can be sent on to the new leaders until `aclose`."""
        if self._loop is not None:
            await self._release_by_keys()
            await self._moves.release_all()

    async def aclose(self) -> None:
        """Hand over what was not yet, and end the lease; in bounded time."""
        await self.hand_over()
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        await self._moves.release_all()
        await self._registration.aclose()
        await self._mirror.aclose()

    async def must_stop(self) -> str:
        """Return, with the reason, once this process must end."""
        await self._must_stop.wait()
        return self.stop_reason

    @property
    def stop_reason(self) -> str:
        """Why this process must end; empty if it need not."""
        if not self._registration.replaced:
            return self._defect
        return (
            f"another process has started as broker {self.me().broker_id}: this one leads nothing any more and must "
            "end. If both are meant to run, give each its own broker.id"
        )

    async def drain(self, broker_id: str, *, undo: bool = False) -> None:
        """A broker is to lead nothing, until it starts again or the drain is undone. Raises `NotFound`,
        `Unavailable`."""
        if self._trouble:
            raise Unavailable(self._trouble)
        if undo:
            await self._kv.delete(self._keys.drained(broker_id))
            return
        if broker_id not in self._picture.brokers:
            known = ", ".join(sorted(self._picture.brokers))
            raise NotFound(f"there is no broker {broker_id!r} in the cluster; there are: {known}")
        await self._kv.put(self._keys.drained(broker_id), b"")

    # ---- `ClusterView`

    def me(self) -> BrokerRecord:
        return self._registration.record

    def brokers(self) -> Sequence[BrokerRecord]:
        return tuple(record for _, record in sorted(self._picture.brokers.items()))

    def peer_secret(self) -> PeerSecret | None:
        """The secret that the cluster's brokers share, as the store had it last."""
        return self._picture.peer_secret

    def draining(self) -> frozenset[str]:
        return self._picture.draining

    def leaders(self) -> Mapping[int, LeaderRecord]:
        return {shard: led.record for shard, led in self._picture.leaders.items()}

    def leader_of(self, shard: int) -> BrokerRecord | None:
        led = self._picture.leaders.get(shard)
        return self._picture.brokers.get(led.record.broker_id) if led else None

    def preferred(self) -> Mapping[int, str]:
        """Who should lead each shard."""
        return decisions.preferred(self._picture, self._shards())

    def surely_leads(self, shard: int, epoch: int) -> bool:
        registration = self._registration
        under_lease = self._picture.epoch_under(shard, registration.lease_id) == epoch
        return under_lease and registration.certain and not self._trouble

    def health(self) -> CoordinatorHealth:
        reason = self._trouble
        if not reason and not self._reachable:
            reason = (
                "etcd cannot be reached: this broker keeps the shards that it leads by their logs, takes none, and "
                "does not hear of other leaders"
            )
        return CoordinatorHealth(reachable=self._reachable, trusted=not self._trouble, reason=reason)

    async def changed(self, timeout_s: float) -> None:
        await first_of(self._changed.wait(), self._runtime.clock.sleep(timeout_s))

    # ---- what is told

    def moved(self) -> None:
        """Something has changed: look at once. The host's broker may call it too, when a shard was fenced."""
        self._wake.set()

    def fenced(self, shard: int, revision: int) -> None:
        """The log of `shard` is ahead of the store."""
        self._trust.note_fenced(shard, revision, self._runtime.clock.monotonic())

    def unable(self) -> None:
        """Claims fail here: let others try."""
        self._registration.not_eligible(UNABLE_S)

    # ---- the loop

    async def _run(self) -> None:
        while not self._registration.replaced:
            self._wake.clear()
            self._look()
            self._moves.lease_id = self._registration.lease_id
            self._moves.begin(decide(self._picture, self._standing(), self._shards()))
            await self._sleep()
        await self._step_down()

    async def _sleep(self) -> None:
        rest_s = self._moves.rests_until_s() - self._runtime.clock.monotonic()
        await first_of(self._wake.wait(), self._runtime.clock.sleep(min(LOOK_EVERY_S, rest_s)))

    def _look(self) -> None:
        """Take in what the mirror and the registration know."""
        before, health = self._picture, self.health()
        self._picture = self._reader.read(self._mirror.items, self._mirror.revision)
        if self._picture.revision < before.revision:
            self._moves.forget_revisions()
            self._trust.forget_fenced()
        self._trouble = self._find_trouble()
        self._check_registration()
        if self._picture != before or self.health() != health:
            self._changed.set()
            self._changed = asyncio.Event()

    def _check_registration(self) -> None:
        """Whether the picture has our record, if it is new enough to have it."""
        registration = self._registration
        if registration.lease_id == 0 or self._picture.revision < registration.revision or self._mirror.stale:
            return
        record = self._picture.brokers.get(registration.record.broker_id)
        if record is None:
            registration.register_anew()
        else:
            registration.found(record.incarnation)

    def _standing(self) -> Standing:
        registration, me, revision = self._registration, self.me(), self._picture.revision
        registered = registration.held and revision >= registration.revision
        return Standing(
            me.broker_id,
            me.incarnation,
            registration.lease_id,
            may_act=registered and self._reachable and not self._trouble,
            may_take=not registration.settling,
            stopping=self._stopping,
            led=self._host.led(),
            busy=self._moves.busy(revision),
            resting=self._moves.resting(),
        )

    @property
    def _reachable(self) -> bool:
        return self._registration.reachable and (self._mirror.refused or not self._mirror.stale)

    # ---- whether the store is believed

    def _find_trouble(self) -> str:
        busy = self._moves.busy(self._picture.revision)
        led = {shard: epoch for shard, epoch in self._host.led().items() if shard not in busy}
        now_s = self._runtime.clock.monotonic()
        return self._trust.trouble(self._picture, led, refused=self._mirror.refused, now_s=now_s)

    async def _may_register(self) -> bool:
        """Whether the store is what it was: asked before each registration, since a lease may be lost with the whole
        store."""
        if self._mirror.incarnation != await self._kv.incarnation() or self._registration.revision:
            await self._mirror.refresh()
        self._look()
        return not self._trouble

    # ---- the end

    async def _release_by_keys(self) -> None:
        """Have the loop release all that is led, each key with its shard; not if the store cannot be asked."""
        clock = self._runtime.clock
        ends_s = clock.monotonic() + self._settings.stop_timeout_s
        self._registration.set_stopping()
        while not self._registration.written and self._standing().may_act and clock.monotonic() < ends_s:
            await self.changed(0.1)  # the others must know before they look for whom a released shard is
        self._stopping = True
        self.moved()
        while self._led_or_moving() and self._standing().may_act and clock.monotonic() < ends_s:
            await self.changed(0.1)

    def _led_or_moving(self) -> bool:
        return not self._defect and (bool(self._host.led()) or not self._moves.idle)

    def _fail(self, error: BaseException) -> None:
        """A broker that follows the cluster no more is worse than none: others can take its shards."""
        _log.critical("leadership has failed", exc_info=error)
        self._defect = f"leadership has failed, which is a defect of Tidelog: {error!r}"
        self._must_stop.set()

    async def _step_down(self) -> None:
        """Another process has our broker id: let go of everything, for good."""
        _log.error("%s", self.stop_reason)
        await self._moves.release_all()
        self._must_stop.set()
