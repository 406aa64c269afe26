"""A key-value store behind a bad network, from a seed: slow, failing, losing answers, cut off; or replaced by
another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

from tidelog.coordinator.kv.key_value import (
    RANGE_LIMIT,
    Compacted,
    Compare,
    KeyValue,
    KeyValueStore,
    Lease,
    Operation,
    RangePage,
    TransactionResult,
    WatchBatch,
)
from tidelog.storage.errors import Unavailable
from tidelog.storage.runtime import Runtime

TIMEOUT_S = 1.0

_Answer = TypeVar("_Answer")


class FaultyKeyValueStore:
    """Implements `KeyValueStore` on `inner`. `way_s_max`: the longest time of a call in each direction. `error_share`:
    the share of calls that fail; half of these took effect. `deaf`: the present watch sends nothing more, as if its
    other end were gone."""

    def __init__(
        self, inner: KeyValueStore, runtime: Runtime, *, way_s_max: float = 0.0, error_share: float = 0.0
    ) -> None:
        self._inner = inner
        self._runtime = runtime
        self._swapped = asyncio.Event()
        self._connected = asyncio.Event()
        self._connected.set()
        self.way_s_max = way_s_max
        self.error_share = error_share
        self.deaf = False
        self.calls: dict[str, int] = {}

    def cut(self) -> None:
        """Let nothing through in either direction; watches send nothing."""
        self._connected.clear()

    def heal(self) -> None:
        self._connected.set()

    def replace(self, inner: KeyValueStore) -> None:
        """Let another store answer under the old address; watches find out like those of etcd."""
        self._inner = inner
        self._swapped.set()

    # ---- `KeyValueStore`

    async def get(self, key: str) -> KeyValue | None:
        return await self._call("get", lambda kv: kv.get(key))

    async def range(
        self, prefix: str, *, limit: int = RANGE_LIMIT, after: str | None = None, revision: int | None = None
    ) -> RangePage:
        return await self._call("range", lambda kv: kv.range(prefix, limit=limit, after=after, revision=revision))

    async def put(self, key: str, value: bytes, *, lease_id: int = 0) -> int:
        return await self._call("put", lambda kv: kv.put(key, value, lease_id=lease_id))

    async def delete(self, key: str) -> bool:
        return await self._call("delete", lambda kv: kv.delete(key))

    async def transact(
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TransactionResult:
        return await self._call("transact", lambda kv: kv.transact(compares, then, otherwise))

    async def grant(self, ttl_s: float) -> Lease:
        return await self._call("grant", lambda kv: kv.grant(ttl_s))

    async def keep_alive(self, lease_id: int) -> float:
        return await self._call("keep_alive", lambda kv: kv.keep_alive(lease_id))

    async def revoke(self, lease_id: int) -> None:
        await self._call("revoke", lambda kv: kv.revoke(lease_id))

    async def incarnation(self) -> str:
        return await self._call("incarnation", lambda kv: kv.incarnation())

    async def aclose(self) -> None:
        """The inner store stays open, because others use it."""

    async def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[WatchBatch]:
        self.deaf = False
        async with aclosing(self._inner.watch(prefix, from_revision)) as batches:
            while True:
                coming = asyncio.ensure_future(anext(batches))
                swapped = asyncio.ensure_future(self._swapped.wait())
                try:
                    await asyncio.wait((coming, swapped), return_when=asyncio.FIRST_COMPLETED)
                    if swapped.done():
                        self._swapped.clear()
                        raise Compacted("the store is another one")
                    batch = coming.result()
                finally:
                    coming.cancel()
                    swapped.cancel()
                    await asyncio.gather(coming, swapped, return_exceptions=True)
                while self.deaf:
                    await self._runtime.clock.sleep(TIMEOUT_S)
                await self._connected.wait()
                await self._way()
                yield batch

    # ---- faults

    async def _call(self, name: str, call: Callable[[KeyValueStore], Awaitable[_Answer]]) -> _Answer:
        self.calls[name] = self.calls.get(name, 0) + 1
        fault = self._runtime.entropy.uniform(0, 1) / self.error_share if self.error_share else 1.0
        await self._arrive(name)
        if fault < 0.5:
            raise Unavailable(f"{name}: refused")
        answer = await call(self._inner)
        await self._arrive(name)
        if fault < 1.0:
            raise Unavailable(f"{name}: the answer was lost")
        return answer

    async def _arrive(self, name: str) -> None:
        await self._way()
        if not self._connected.is_set():
            await self._runtime.clock.sleep(TIMEOUT_S)
            raise Unavailable(f"{name}: no answer in {TIMEOUT_S} s")

    async def _way(self) -> None:
        if self.way_s_max:
            await self._runtime.clock.sleep(self._runtime.entropy.uniform(0, self.way_s_max))
