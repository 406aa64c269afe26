"""Implements `KeyValueStore` on an etcd cluster."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Sequence

from tidelog.coordinator.etcd import rpc_pb2 as pb
from tidelog.coordinator.etcd.calls import Calls
from tidelog.coordinator.etcd.conversion import (
    end_of,
    item_of,
    key_bytes,
    result_of,
    start_of,
    transaction_of,
)
from tidelog.coordinator.etcd.endpoints import Endpoint
from tidelog.coordinator.etcd.rpc import LEASE_GRANT, LEASE_KEEP_ALIVE, LEASE_REVOKE, RANGE, TXN, Metadata
from tidelog.coordinator.etcd.settings import EtcdSettings
from tidelog.coordinator.etcd.streams import opened
from tidelog.coordinator.etcd.watch import Watch
from tidelog.coordinator.kv.key_value import (
    RANGE_LIMIT,
    Compare,
    KeyValue,
    KeyValueStore,
    Lease,
    LeaseLost,
    Operation,
    RangePage,
    TransactionResult,
    WatchBatch,
)
from tidelog.storage.errors import AlreadyExists, Invalid
from tidelog.storage.runtime import Runtime

_LEASE_ID_DIGITS = 15
"""Hexadecimal: 60 bits. etcd's ids have 63."""


class EtcdKeyValueStore(KeyValueStore):
    """Connects on first use. Must be created on a running event loop; raises `Invalid` for wrong settings."""

    def __init__(self, settings: EtcdSettings, runtime: Runtime) -> None:
        self._calls = Calls(settings, runtime)

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
        answer = await self._calls.unary(RANGE, request, repeatable=True)
        return RangePage([item_of(found) for found in answer.kvs], revision or answer.header.revision, answer.more)

    async def transact(
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TransactionResult:
        request = transaction_of(compares, then, otherwise)
        return result_of(await self._calls.unary(TXN, request, repeatable=False))

    # Calls for leases may be repeated: renewing or ending a lease twice does no harm, and we choose the id of a new
    # lease, so a second try finds the lease of the first.

    async def grant(self, ttl_s: float) -> Lease:
        """etcd counts whole seconds; the minimum follows from its election timeout."""
        lease_id = int(self._calls.runtime.entropy.new_id()[:_LEASE_ID_DIGITS], 16) or 1
        request = pb.LeaseGrantRequest(id=lease_id, ttl=max(1, math.ceil(ttl_s)))
        try:
            answer = await self._calls.unary(LEASE_GRANT, request, repeatable=True, linearizable=False)
        except AlreadyExists:  # an earlier try created it, and its answer was lost
            return Lease(lease_id, await self.keep_alive(lease_id))
        return Lease(answer.id, float(answer.ttl))

    async def keep_alive(self, lease_id: int) -> float:
        """Opens a stream for each renewal, so a broken stream or a silent member affects only this call."""

        async def ask(endpoint: Endpoint, metadata: Metadata, timeout_s: float) -> pb.LeaseKeepAliveResponse:
            with opened(self._calls.endpoints, endpoint, LEASE_KEEP_ALIVE, metadata, timeout_s) as stream:
                await stream.send(pb.LeaseKeepAliveRequest(id=lease_id))
                return await stream.receive()

        answer = await self._calls.run(ask, repeatable=True, linearizable=False)
        if answer.ttl <= 0:
            raise LeaseLost(f"lease {lease_id:x} has ended")
        return float(answer.ttl)

    async def revoke(self, lease_id: int) -> None:
        try:
            request = pb.LeaseRevokeRequest(id=lease_id)
            await self._calls.unary(LEASE_REVOKE, request, repeatable=True, linearizable=False)
        except LeaseLost:
            return

    def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[WatchBatch]:
        return Watch(self._calls, prefix, from_revision).batches()

    async def incarnation(self) -> str:
        """Asks etcd on each call, so that a change is detected."""
        await self._calls.current_state()
        known = self._calls.incarnations.known
        assert known is not None, "an answer was observed"
        return known.incarnation

    async def aclose(self) -> None:
        await self._calls.endpoints.aclose()
