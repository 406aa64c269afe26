"""Registers this broker in etcd under a lease and keeps the registration alive.

- Renews the lease three times per TTL, in its own task. If the lease is lost, registers again.
- Keeps the record current. The broker becomes eligible `rebalance_delay_s` after its start. After a lost lease it
  becomes eligible again later, when the other brokers have had time to register again, too.
- `held` is True only while the lease is valid by this process's clock: the deadline counts from before the renewal was
  sent, on the monotonic clock. False means "unknown", not "expired". Shard leaders keep running either way, because the
  WAL, not the lease, decides who may commit.
- `certain` is True for a shorter time, so that it is right even if this process's clock runs slower than etcd's. Reads
  rely on it (docs/adr/0017-linearizable-reads.md).
- If a second process starts with the same broker id, the first one finds another incarnation under its key. It sets
  `replaced` and must stop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from tidelog.coordinator.cluster.cluster_keys import BrokerRecord, ClusterKeys, decode_value, encode_value
from tidelog.coordinator.kv.key_value import (
    DeleteKey,
    KeyValue,
    KeyValueStore,
    LeaseLost,
    Operation,
    PutKey,
    as_read,
)
from tidelog.coordinator.leadership.tasks import OnFailure, cancel_all, first_of, log_failure, spawn
from tidelog.storage.backoff import Backoff
from tidelog.storage.errors import Corrupt, TidelogError
from tidelog.storage.runtime import Runtime

KEEP_ALIVES_PER_TTL = 3
CERTAIN_SHARE = 0.75
"""The share of the TTL for which `certain` holds: this process's clock may run slower than etcd's by a quarter."""
_RETRY = Backoff(first_s=0.1, max_s=1.0)

_log = logging.getLogger(__name__)


class Registration:
    """See the module docstring. `may_register` is awaited before each registration and says whether the store is
    trusted. `on_change` is called when a public attribute changes, `on_failure` with a defect that ended a task. The
    broker becomes eligible for shards `rebalance_delay_s` after its start."""

    def __init__(
        self,
        kv: KeyValueStore,
        keys: ClusterKeys,
        me: BrokerRecord,
        runtime: Runtime,
        *,
        lease_ttl_s: float,
        rebalance_delay_s: float,
        may_register: Callable[[], Awaitable[bool]],
        on_change: Callable[[], None],
        on_failure: OnFailure = log_failure,
    ) -> None:
        self._kv = kv
        self._keys = keys
        self._runtime = runtime
        self._lease_ttl_s = lease_ttl_s
        self._rebalance_delay_s = rebalance_delay_s
        self._may_register = may_register
        self._on_change = on_change
        self._on_failure = on_failure
        self._written: BrokerRecord | None = None
        self._record_changed = asyncio.Event()
        self._lost = asyncio.Event()
        self._held_until_s = float("-inf")
        self._certain_until_s = float("-inf")
        self._registered_before = False
        self._came_back = False
        self._eligible_from_s = float("inf")
        self._eligibility_paused = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.record = me
        self.lease_id = 0
        self.revision = 0
        self.reachable = True
        self.replaced = False

    @property
    def held(self) -> bool:
        """Whether the lease is valid now by this process's clock."""
        return self.lease_id != 0 and self._runtime.clock.monotonic() < self._held_until_s

    @property
    def certain(self) -> bool:
        """Whether the lease is valid now even if etcd's clock runs faster."""
        return self.lease_id != 0 and self._runtime.clock.monotonic() < self._certain_until_s

    @property
    def settling(self) -> bool:
        """Whether the broker lost a lease, has registered again, and is not eligible yet."""
        return self._came_back and not self.record.eligible

    @property
    def written(self) -> bool:
        """Whether the store holds the current record."""
        return self.lease_id != 0 and self._written == self.record

    def start(self) -> None:
        """Begin to register. Does not wait for the store."""
        self._eligible_from_s = self._runtime.clock.monotonic() + self._rebalance_delay_s
        works = (self._stay_registered(), self._stay_current(), self._become_eligible())
        self._tasks = [spawn(work, self._on_failure) for work in works]

    async def aclose(self) -> None:
        """Stop, and end the lease if the store answers."""
        await cancel_all(self._tasks)
        if self.lease_id == 0:
            return
        try:
            await self._kv.revoke(self.lease_id)
        except TidelogError as error:
            _log.info("could not end the lease; it will expire: %s", error)

    def set_stopping(self) -> None:
        """Announce that this broker hands its shards over."""
        self._set_record(msgspec.structs.replace(self.record, stopping=True))

    def register_again(self) -> None:
        """The store does not hold the record, although the lease may be valid."""
        self._lost.set()

    def pause_eligibility(self, delay_s: float) -> None:
        """Get no shards for `delay_s`."""
        self._eligible_from_s = self._runtime.clock.monotonic() + delay_s
        self._eligibility_paused.set()
        self._set_record(msgspec.structs.replace(self.record, eligible=False))

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
                _log.warning("%s lost its lease and registers again: %s", self.record.broker_id, error)
                self._forget_lease()
                continue
            except TidelogError as error:
                failures += 1
                _log.warning("could not renew the registration of %s: %s", self.record.broker_id, error)
                self._set_reachable(reachable=False)
                await self._runtime.clock.sleep(_RETRY.delay_s(failures, self._runtime.entropy))
                continue
            await self._pause()

    async def _pause(self) -> None:
        """Wait until the next renewal is due or `register_again` is called."""
        interval_s = self._lease_ttl_s / KEEP_ALIVES_PER_TTL
        await first_of(self._runtime.clock.sleep(interval_s), self._lost.wait())
        if self._lost.is_set():
            self._forget_lease()

    async def _keep_alive(self) -> None:
        sent_s, was_held = self._runtime.clock.monotonic(), self.held
        left_s = await self._kv.keep_alive(self.lease_id)
        self._set_deadlines(sent_s, left_s)
        if not was_held:
            self._on_change()

    def _set_deadlines(self, sent_s: float, left_s: float) -> None:
        """The store answered a request sent at `sent_s` that the lease lasts `left_s` more."""
        self._held_until_s = sent_s + left_s
        self._certain_until_s = sent_s + CERTAIN_SHARE * left_s

    def _forget_lease(self) -> None:
        self.lease_id = 0
        self._written = None
        self._on_change()

    async def _register(self) -> None:
        """Get a lease and put the record under it."""
        while not await self._may_register():
            self._set_reachable(reachable=True)
            await self._runtime.clock.sleep(self._lease_ttl_s / KEEP_ALIVES_PER_TTL)
        self._lost.clear()
        if self._registered_before:
            self._came_back = True
            self.pause_eligibility(max(self._rebalance_delay_s, self._lease_ttl_s))
        sent_s = self._runtime.clock.monotonic()
        lease = await self._kv.grant(self._lease_ttl_s)
        record = self.record
        if await self._put(record, lease.lease_id):
            self._registered_before = True
            self.lease_id = lease.lease_id
            self._set_deadlines(sent_s, lease.ttl_s)
            self._written = record
            self._record_changed.set()  # it may have changed while the store was asked
            self._on_change()
            _log.info("%s is registered as incarnation %s", record.broker_id, record.incarnation)

    async def _put(self, record: BrokerRecord, lease_id: int) -> bool:
        """Put `record`. If another incarnation has replaced ours, step down instead; at the first registration, we
        replace the other one."""
        key = self._keys.broker(record.broker_id)
        while True:
            found = await self._kv.get(key)
            if self._registered_before and found is not None and self._is_another(found):
                self._step_down()
                return False
            puts: list[Operation] = [PutKey(key, encode_value(record), lease_id)]
            if not self._registered_before:
                puts.append(DeleteKey(self._keys.drained(record.broker_id)))
            result = await self._kv.transact([as_read(key, found)], puts)
            if result.succeeded:
                self.revision = result.revision
                return True

    def _is_another(self, found: KeyValue) -> bool:
        try:
            return decode_value(found.key, found.value, BrokerRecord).incarnation != self.record.incarnation
        except Corrupt as error:
            _log.warning("overwriting a broken key: %s", error)
            return False

    def _step_down(self) -> None:
        self.replaced = True
        self._on_change()

    def check_incarnation(self, incarnation: str) -> None:
        """The store holds `incarnation` under this broker's id."""
        if self._registered_before and incarnation != self.record.incarnation and not self.replaced:
            self._step_down()

    async def _become_eligible(self) -> None:
        clock = self._runtime.clock
        while True:
            while (left_s := self._eligible_from_s - clock.monotonic()) > 0:
                await clock.sleep(left_s)
            self._set_record(msgspec.structs.replace(self.record, eligible=True))
            await self._eligibility_paused.wait()
            self._eligibility_paused.clear()

    def _set_record(self, record: BrokerRecord) -> None:
        self.record = record
        self._record_changed.set()
        self._on_change()

    async def _stay_current(self) -> None:
        """Write the record when it has changed. Without a lease, the next registration writes it."""
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
                _log.info("could not write the record of %s, retrying: %s", self.record.broker_id, error)
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
