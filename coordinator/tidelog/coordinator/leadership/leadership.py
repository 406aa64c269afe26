"""Decides which shards this broker leads: follows the key-value store, and tells its host to lead and release shards.

    await leadership.start()                # raises Unavailable
    leadership.view.leader_of(shard)        # a `ClusterView`
    reason = await leadership.must_stop()   # returns only if this process must end
    await leadership.aclose()               # releases all shards, then ends the lease

One loop wakes at each change of the mirror or of the registration, and at the end of each move. It takes a snapshot,
calls `decide`, and begins the moves that it returns, without waiting for them. While nothing changes, a broker sends
the store only its lease renewals and the mirror's rare checks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from tidelog.coordinator.cluster.cluster_keys import BrokerRecord, ClusterKeys
from tidelog.coordinator.kv.key_value import KeyValueStore
from tidelog.coordinator.leadership.cluster_follower import ClusterFollower, LeadershipSettings
from tidelog.coordinator.leadership.decisions import OwnState, decide
from tidelog.coordinator.leadership.shard_host import ShardHost
from tidelog.coordinator.leadership.shard_moves import ShardMoves
from tidelog.coordinator.leadership.tasks import cancel_all, first_of, spawn
from tidelog.storage.errors import NotFound, Unavailable
from tidelog.storage.runtime import Runtime

LOOK_EVERY_S = 1.0
"""The host does not report that a shard was fenced, so the loop looks at its shards this often; it sends no request."""
UNABLE_S = 20.0
"""A broker that could not claim shards gets none for this long, so that others try."""

_log = logging.getLogger(__name__)


class Leadership:
    """`me` is this process's record: a new incarnation, neither eligible nor stopping. `shards` is called at each
    decision, because their number can grow."""

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
        self._moves = ShardMoves(kv, keys, host, me, runtime, self)
        self.view = ClusterFollower(
            kv, keys, me, self._moves, runtime, settings, on_change=self.wake, on_failure=self._fail
        )
        self._stopping = False
        self._defect = ""
        self._wake = asyncio.Event()
        self._must_stop = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the cluster's state and begin. Does not wait for the registration. Raises `Unavailable`, `Denied`."""
        await self.view.start()
        self._loop = spawn(self._run(), self._fail)

    async def hand_over(self) -> None:
        """Announce that this broker stops, and release every shard, in bounded time. The view stays current until
        `aclose`, so requests can be forwarded to the new leaders."""
        if self._loop is not None:
            await self._release_with_keys()
            await self._moves.release_all()

    async def aclose(self) -> None:
        """Hand over the remaining shards and end the lease, in bounded time."""
        await self.hand_over()
        if self._loop is not None:
            await cancel_all([self._loop])
        await self._moves.release_all()
        await self.view.aclose()

    async def must_stop(self) -> str:
        """Return the reason once this process must end."""
        await self._must_stop.wait()
        return self.stop_reason

    @property
    def stop_reason(self) -> str:
        """Why this process must end; empty if it need not."""
        if not self.view.registration.replaced:
            return self._defect
        return (
            f"another process has started as broker {self.view.me().broker_id}: this one leads nothing any more and "
            "must end. If both are meant to run, give each its own broker.id"
        )

    async def drain(self, broker_id: str, *, undo: bool = False) -> None:
        """Make a broker lead nothing, until it restarts or the drain is undone. Raises `NotFound`, `Unavailable`."""
        if self.view.trouble:
            raise Unavailable(self.view.trouble)
        if undo:
            await self._kv.delete(self._keys.drained(broker_id))
            return
        brokers = self.view.snapshot.brokers
        if broker_id not in brokers:
            raise NotFound(f"there is no broker {broker_id!r} in the cluster; there are: {', '.join(sorted(brokers))}")
        await self._kv.put(self._keys.drained(broker_id), b"")

    def wake(self) -> None:
        """Decide again at once: something has changed. The broker may call this too, when a shard was fenced."""
        self._wake.set()

    def log_is_ahead(self, shard: int, revision: int) -> None:
        self.view.note_fenced(shard, revision)

    def claims_fail(self) -> None:
        self.view.registration.pause_eligibility(UNABLE_S)

    async def _run(self) -> None:
        while not self.view.registration.replaced:
            self._wake.clear()
            self.view.refresh()
            self._moves.lease_id = self.view.registration.lease_id
            self._moves.begin(decide(self.view.snapshot, self._own_state(), self._shards()))
            rest_s = self._moves.rests_until_s() - self._runtime.clock.monotonic()
            await first_of(self._wake.wait(), self._runtime.clock.sleep(min(LOOK_EVERY_S, rest_s)))
        _log.error("%s", self.stop_reason)
        await self._moves.release_all()
        self._must_stop.set()

    def _own_state(self) -> OwnState:
        registration, me = self.view.registration, self.view.me()
        return OwnState(
            me.broker_id,
            me.incarnation,
            registration.lease_id,
            may_act=self.view.may_act,
            may_take=not registration.settling,
            stopping=self._stopping,
            led=self._host.led(),
            busy=self._moves.busy(self.view.snapshot.revision),
            resting=self._moves.resting(),
        )

    async def _release_with_keys(self) -> None:
        """Let the loop release all shards and delete their keys, as long as the store answers."""
        view, clock = self.view, self._runtime.clock
        ends_s = clock.monotonic() + self._settings.stop_timeout_s
        view.registration.set_stopping()
        while not view.registration.written and view.may_act and clock.monotonic() < ends_s:
            await view.changed(0.1)  # the others must know before they decide who takes a released shard
        self._stopping = True
        self.wake()
        while self._leads_or_moves() and view.may_act and clock.monotonic() < ends_s:
            await view.changed(0.1)

    def _leads_or_moves(self) -> bool:
        return not self._defect and (bool(self._host.led()) or not self._moves.idle)

    def _fail(self, error: BaseException) -> None:
        """A broker that no longer follows the cluster must stop, so that others can take its shards."""
        _log.critical("leadership has failed", exc_info=error)
        self._defect = f"leadership has failed, which is a defect of Tidelog: {error!r}"
        self._must_stop.set()
