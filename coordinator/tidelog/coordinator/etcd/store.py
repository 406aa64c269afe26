"""The key-value store on an etcd cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from tidelog.coordinator.etcd import rpc_pb2 as pb
from tidelog.coordinator.etcd.calls import Calls
from tidelog.coordinator.etcd.conversion import (
    end_of,
    item_of,
    key_bytes,
    page_of,
    result_of,
    start_of,
    transaction_of,
)
from tidelog.coordinator.etcd.leases import Leases
from tidelog.coordinator.etcd.rpc import DELETE_RANGE, PUT, RANGE, TXN
from tidelog.coordinator.etcd.settings import EtcdSettings
from tidelog.coordinator.etcd.watch import Watch
from tidelog.coordinator.kv.key_value import (
    RANGE_LIMIT,
    Compacted,
    Compare,
    KeyValue,
    Lease,
    Operation,
    RangePage,
    TransactionResult,
    WatchBatch,
)
from tidelog.storage.errors import Invalid, Unavailable
from tidelog.storage.runtime import Runtime


class EtcdKeyValueStore:
    """Implements `KeyValueStore`. To be made on a running event loop; it connects when it is first used. Raises
    `Invalid` for settings that cannot be."""

    def __init__(self, settings: EtcdSettings, runtime: Runtime) -> None:
        self._calls = Calls(settings, runtime)
        self._leases = Leases(self._calls)

    async def get(self, key: str) -> KeyValue | None:
        answer = await self._calls.unary(RANGE, pb.RangeRequest(key=key_bytes(key)), repeatable=True)
        return item_of(answer.kvs[0]) if answer.kvs else None

    async def range(
        self, prefix: str, *, limit: int = RANGE_LIMIT, after: str | None = None, revision: int | None = None
    ) -> RangePage:
        if limit < 1:
            raise Invalid(f"a page has at least one key, not {limit}", field="limit")
        request = pb.RangeRequest(
            key=start_of(prefix, after), range_end=end_of(prefix), limit=limit, revision=revision or 0
        )
        try:
            return page_of(await self._calls.unary(RANGE, request, repeatable=True), revision)
        except Compacted as compacted:
            raise await self._with_oldest_revision(compacted, revision or 0) from None

    async def put(self, key: str, value: bytes, *, lease_id: int = 0) -> int:
        request = pb.PutRequest(key=key_bytes(key), value=value, lease=lease_id)
        return (await self._calls.unary(PUT, request, repeatable=False)).header.revision

    async def delete(self, key: str) -> bool:
        request = pb.DeleteRangeRequest(key=key_bytes(key))
        return (await self._calls.unary(DELETE_RANGE, request, repeatable=False)).deleted > 0

    async def transact(
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TransactionResult:
        request = transaction_of(compares, then, otherwise)
        return result_of(await self._calls.unary(TXN, request, repeatable=False))

    async def grant(self, ttl_s: float) -> Lease:
        return await self._leases.grant(ttl_s)

    async def keep_alive(self, lease_id: int) -> float:
        return await self._leases.keep_alive(lease_id)

    async def revoke(self, lease_id: int) -> None:
        await self._leases.revoke(lease_id)

    def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[WatchBatch]:
        return Watch(self._calls, prefix, from_revision).batches()

    async def incarnation(self) -> str:
        """Asked anew each time, so that a change shows."""
        await self._calls.current_state()
        mark = self._calls.sightings.mark
        assert mark is not None, "an answer was noted"
        return mark.incarnation

    async def aclose(self) -> None:
        await self._calls.endpoints.aclose()

    async def _with_oldest_revision(self, compacted: Compacted, revision: int) -> Compacted:
        """A range is refused without saying what is kept; a watch says it."""
        try:
            async with asyncio.timeout(self._calls.timeout_s), aclosing(self.watch("\0", revision)) as watch:
                await anext(watch)
        except Compacted as told:
            return told
        except (TimeoutError, Unavailable):
            pass  # another member, which has not compacted yet, or none: what is certain is said
        return Compacted(str(compacted), oldest_revision=revision + 1)
