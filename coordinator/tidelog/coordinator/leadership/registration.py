"""Registers this broker in etcd under a lease and keeps the registration alive.

- Renews the lease three times per TTL, in its own task. If the lease is lost, registers again.
- Keeps the record current: stopping when told; eligible once the broker has been up for `rebalance_delay_s` and, after
  a lost lease, once it has been back for as long again as the other brokers need to come back too.
- `held` is True only while the lease lasts by this process's clock: the deadline counts from before the renewal was
  sent, on the monotonic clock, since the answer may have waited while this process was paused. False means "unknown",
  not "expired". Shard leaders keep running either way, because the WAL, not the lease, decides who may commit.
- `certain` is True for a part of that time only, so that it also holds if this process's clock runs slower than etcd's.
  Reads rest on it (docs/adr/0017-linearizable-reads.md).
- If a second process starts with the same broker id, the first one finds another incarnation under its key. It sets
  `replaced` and must stop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from tidelog.coordinator.cluster.cluster_keys import BrokerRecord, ClusterKeys, decode_value, encode_value
from tidelog.coordinator.kv.key_value import (
    DeleteKey,
    KeyValue,
    KeyValueStore,
    LeaseLost,
    Operation,
    PutKey,
    absent,
    unchanged,
)
from tidelog.coordinator.leadership.waiting import OnFailure, first_of, log_failure, spawn
from tidelog.storage.backoff import Backoff
from tidelog.storage.errors import Corrupt, TidelogError
from tidelog.storage.runtime import Runtime

KEEP_ALIVES_PER_TTL = 3
CERTAIN_SHARE = 0.75
"""The part of the lease's time in which reads rest on it: this process's clock may run slower than etcd's by a
quarter."""
_RETRY = Backoff(first_s=0.1, max_s=1.0)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RegistrationSettings:
    """`rebalance_delay_s`: how long a broker is up before it is eligible for shards."""

    lease_ttl_s: float = 6.0
    rebalance_delay_s: float = 3.0


class Registration:
    """See the module's head. `may_register` is asked before each registration whether the store is to be believed;
    `on_change` is called whenever anything public here is another, `on_failure` when a defect ended it."""

    def __init__(
        self,
        kv: KeyValueStore,
        keys: ClusterKeys,
        me: BrokerRecord,
        runtime: Runtime,
        settings: RegistrationSettings,
        *,
        may_register: Callable[[], Awaitable[bool]],
        on_change: Callable[[], None],
        on_failure: OnFailure = log_failure,
    ) -> None:
        self._kv = kv
        self._keys = keys
        self._runtime = runtime
        self._settings = settings
        self._may_register = may_register
        self._on_change = on_change
        self._on_failure = on_failure
        self._written: BrokerRecord | None = None
        self._record_changed = asyncio.Event()
        self._lost = asyncio.Event()
        self._held_until_s = float("-inf")
        self._certain_until_s = float("-inf")
        self._known = False
        self._came_back = False
        self._eligible_from_s = float("inf")
        self._unsettled = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.record = me
        self.lease_id = 0
        self.revision = 0
        self.reachable = True
        self.replaced = False

    @property
    def held(self) -> bool:
        """Whether the lease lasts at this moment by this process's clock."""
        return self.lease_id != 0 and self._runtime.clock.monotonic() < self._held_until_s

    @property
    def certain(self) -> bool:
        """Whether the lease lasts at this moment by etcd's clock too, should that run faster."""
        return self.lease_id != 0 and self._runtime.clock.monotonic() < self._certain_until_s

    @property
    def settling(self) -> bool:
        """Whether it came back a moment ago, after a lease was lost."""
        return self._came_back and not self.record.eligible

    @property
    def written(self) -> bool:
        """Whether the store holds the record as it is now."""
        return self.lease_id != 0 and self._written == self.record

    def start(self) -> None:
        """Begin; does not wait for the store."""
        self._eligible_from_s = self._runtime.clock.monotonic() + self._settings.rebalance_delay_s
        works = (self._stay_registered(), self._stay_current(), self._become_eligible())
        self._tasks = [spawn(work, self._on_failure) for work in works]

    async def aclose(self) -> None:
        """Stop, and end the lease if the store can be asked."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.lease_id == 0:
            return
        try:
            await self._kv.revoke(self.lease_id)
        except TidelogError as error:
            _log.info("the lease could not be ended, and will run out by itself: %s", error)

    def set_stopping(self) -> None:
        """Say that this broker wants to be rid of its shards."""
        self._set_record(msgspec.structs.replace(self.record, stopping=True))

    def register_anew(self) -> None:
        """The record is not in the store, though the lease may last."""
        self._lost.set()

    def not_eligible(self, delay_s: float) -> None:
        """Be given no shards for `delay_s`."""
        self._eligible_from_s = self._runtime.clock.monotonic() + delay_s
        self._unsettled.set()
        self._set_record(msgspec.structs.replace(self.record, eligible=False))

    # ---- the lease

    async def _stay_registered(self) -> None:
        failures = 0
        while not self.replaced:
            try:
                if self.lease_id == 0:
                    await self._register()
                await self._keep_alive()
                self._set_reachable(reachable=True)
                failures = 0
            except LeaseLost as error:
                _log.warning("the lease of %s is lost, it registers anew: %s", self.record.broker_id, error)
                self._forget_lease()
                continue
            except TidelogError as error:
                failures += 1
                _log.warning("the registration of %s is not renewed: %s", self.record.broker_id, error)
                self._set_reachable(reachable=False)
                await self._runtime.clock.sleep(_RETRY.delay_s(failures, self._runtime.entropy))
                continue
            await self._pause()

    async def _pause(self) -> None:
        """Until the next keep-alive is due, or somebody says that the registration is lost."""
        interval_s = self._settings.lease_ttl_s / KEEP_ALIVES_PER_TTL
        await first_of(self._runtime.clock.sleep(interval_s), self._lost.wait())
        if self._lost.is_set():
            self._forget_lease()

    async def _keep_alive(self) -> None:
        sent_s, was_held = self._runtime.clock.monotonic(), self.held
        left_s = await self._kv.keep_alive(self.lease_id)
        self._lasts(sent_s, left_s)
        if not was_held:
            self._on_change()

    def _lasts(self, sent_s: float, left_s: float) -> None:
        """The store said that the lease has `left_s` more, to a request sent at `sent_s`."""
        self._held_until_s = sent_s + left_s
        self._certain_until_s = sent_s + CERTAIN_SHARE * left_s

    def _forget_lease(self) -> None:
        self.lease_id = 0
        self._written = None
        self._on_change()

    async def _register(self) -> None:
        """Get a lease, and put the record under it."""
        while not await self._may_register():
            self._set_reachable(reachable=True)
            await self._runtime.clock.sleep(self._settings.lease_ttl_s / KEEP_ALIVES_PER_TTL)
        self._lost.clear()
        if self._known:
            self._came_back = True
            self.not_eligible(max(self._settings.rebalance_delay_s, self._settings.lease_ttl_s))
        sent_s = self._runtime.clock.monotonic()
        lease = await self._kv.grant(self._settings.lease_ttl_s)
        record = self.record
        if await self._put(record, lease.lease_id):
            self._known = True
            self.lease_id = lease.lease_id
            self._lasts(sent_s, lease.ttl_s)
            self._written = record
            self._record_changed.set()  # it may have changed while this one was on its way
            self._on_change()
            _log.info("%s is registered as incarnation %s", record.broker_id, record.incarnation)

    async def _put(self, record: BrokerRecord, lease_id: int) -> bool:
        """Put `record`, unless another incarnation has come in our place: then this one is over. The first time, we are
        the one that comes."""
        key = self._keys.broker(record.broker_id)
        while True:
            found = await self._kv.get(key)
            if self._known and found is not None and self._is_another(found):
                self._step_down()
                return False
            compare = absent(key) if found is None else unchanged(found)
            puts: list[Operation] = [PutKey(key, encode_value(record), lease_id)]
            if not self._known:
                puts.append(DeleteKey(self._keys.drained(record.broker_id)))
            result = await self._kv.transact([compare], puts)
            if result.succeeded:
                self.revision = result.revision
                return True

    def _is_another(self, found: KeyValue) -> bool:
        try:
            return decode_value(found.key, found.value, BrokerRecord).incarnation != self.record.incarnation
        except Corrupt as error:
            _log.warning("overwritten: %s", error)
            return False

    def _step_down(self) -> None:
        self.replaced = True
        self._on_change()

    def found(self, incarnation: str) -> None:
        """The store names `incarnation` as this broker's."""
        if self._known and incarnation != self.record.incarnation and not self.replaced:
            self._step_down()

    # ---- the record

    async def _become_eligible(self) -> None:
        clock = self._runtime.clock
        while True:
            while (left_s := self._eligible_from_s - clock.monotonic()) > 0:
                await clock.sleep(left_s)
            self._set_record(msgspec.structs.replace(self.record, eligible=True))
            await self._unsettled.wait()
            self._unsettled.clear()

    def _set_record(self, record: BrokerRecord) -> None:
        self.record = record
        self._record_changed.set()
        self._on_change()

    async def _stay_current(self) -> None:
        """Write the record whenever it has changed; while there is no lease, registering will."""
        failures = 0
        while not self.replaced:
            await self._record_changed.wait()
            self._record_changed.clear()
            try:
                await self._write_record()
                failures = 0
            except LeaseLost:
                self._lost.set()
            except TidelogError as error:
                failures += 1
                _log.info("the record of %s could not be written yet: %s", self.record.broker_id, error)
                self._record_changed.set()
                await self._runtime.clock.sleep(_RETRY.delay_s(failures, self._runtime.entropy))

    async def _write_record(self) -> None:
        record, lease_id = self.record, self.lease_id
        if lease_id == 0 or self._written == record or not await self._put(record, lease_id):
            return
        if self.lease_id == lease_id:
            self._written = record
            self._on_change()

    def _set_reachable(self, *, reachable: bool) -> None:
        if self.reachable != reachable:
            self.reachable = reachable
            self._on_change()
