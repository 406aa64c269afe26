"""A request that takes too long is sent a second time: which requests, how often, and whose answer counts."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.broker.brokers import until
from tests.simulation.light_codec import NO_RECORDS, LightWalCodec

from tidelog.storage.errors import Conflict, NotFound, TidelogError, Unavailable
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.object_store import Body, ByteRange, ObjectInfo, StoredObject
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.hedging import HEDGED_BYTES_MAX, HEDGES_SAVED_MAX, HedgingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_entry import PreparedEntry
from tidelog.storage.wal.wal_writer import WalWriter

AFTER_S = 0.02
SOME = ByteRange(0, 100)


class HangingStore(MemoryObjectStore):
    """Hangs on the next `hangs` requests; with `effect`, after they took effect. `late` is their answer in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = 0
        self.effect = False
        self.late: TidelogError | None = None
        self.gate = asyncio.Event()
        self.requests: list[str] = []

    async def _hang(self, verb: str) -> None:
        self.requests.append(verb)
        if self.hangs and not self.effect:
            self.hangs -= 1
            await self.gate.wait()
            if self.late:
                raise self.late

    async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
        await self._hang("get")
        return await super().get(key, byte_range)

    async def head(self, key: str) -> ObjectInfo:
        await self._hang("head")
        return await super().head(key)

    async def create(self, key: str, data: Body) -> str:
        await self._hang("create")
        version = await super().create(key, data)
        if self.hangs:
            self.hangs -= 1
            await self.gate.wait()
        return version

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        await self._hang("put")
        return await super().put(key, data, if_version=if_version)

    async def delete(self, key: str) -> None:
        await self._hang("delete")
        await super().delete(key)


@pytest.fixture
def hanging() -> HangingStore:
    return HangingStore()


@pytest.fixture
def hedging(hanging: HangingStore) -> HedgingObjectStore:
    return HedgingObjectStore(hanging, after_s=AFTER_S)


async def test_a_request_that_is_answered_in_time_is_sent_once(
    hanging: HangingStore, hedging: HedgingObjectStore
) -> None:
    await hedging.create("a", b"1")
    assert (await hedging.get("a", SOME)).data == b"1"
    with pytest.raises(NotFound):
        await hedging.head("b")
    assert hanging.requests == ["create", "get", "head"]
    assert hedging.hedges == 0


Call = Callable[[HedgingObjectStore], Coroutine[Any, Any, object]]


@pytest.mark.parametrize(
    ("verb", "call"),
    [
        ("get", lambda store: store.get("a", SOME)),
        ("head", lambda store: store.head("a")),
        ("create", lambda store: store.create("b", b"2")),
    ],
)
async def test_one_that_hangs_is_sent_again_and_the_first_answer_counts(
    hanging: HangingStore, hedging: HedgingObjectStore, verb: str, call: Call
) -> None:
    await hanging.put("a", b"1")
    hanging.requests.clear()
    hanging.hangs = 1
    async with asyncio.timeout(60):
        await call(hedging)
    assert hanging.requests == [verb, verb]
    assert hedging.hedges == 1


@pytest.mark.parametrize(
    ("verb", "call"),
    [
        ("put", lambda store: store.put("a", b"2")),
        ("delete", lambda store: store.delete("a")),
        ("delete", lambda store: store.delete_many(["a"])),
        ("create", lambda store: store.create("b", b"x" * (HEDGED_BYTES_MAX + 1))),
    ],
)
async def test_overwrites_and_large_bodies_are_sent_once(
    hanging: HangingStore, hedging: HedgingObjectStore, verb: str, call: Call
) -> None:
    hanging.hangs = 1
    sent = asyncio.create_task(call(hedging))
    await asyncio.sleep(5 * AFTER_S)
    assert hanging.requests == [verb]
    hanging.gate.set()
    await sent


async def test_the_second_ones_failure_is_no_answer_while_the_first_one_may_come(
    hanging: HangingStore, hedging: HedgingObjectStore
) -> None:
    await hanging.put("a", b"1")
    hanging.requests.clear()
    hanging.hangs, inner_get = 1, hanging.get

    async def get(key: str, byte_range: ByteRange | None = None) -> StoredObject:
        if hanging.requests:
            hanging.requests.append("get")
            hanging.gate.set()
            raise Unavailable("503")
        return await inner_get(key, byte_range)

    hanging.get = get  # type: ignore[method-assign]
    assert (await hedging.get("a", SOME)).data == b"1"
    assert hanging.requests == ["get", "get"]


async def test_if_both_fail_that_is_said(hanging: HangingStore, hedging: HedgingObjectStore) -> None:
    hanging.hangs, hanging.late = 2, Unavailable("503")
    asyncio.get_running_loop().call_later(3 * AFTER_S, hanging.gate.set)
    with pytest.raises(Unavailable, match="503"):
        await hedging.get("a", SOME)


async def test_when_a_create_took_effect_and_hung_its_second_attempt_gets_a_conflict(
    hanging: HangingStore, hedging: HedgingObjectStore
) -> None:
    hanging.hangs, hanging.effect = 1, True
    with pytest.raises(Conflict):
        await hedging.create("a", b"1")
    assert (await hanging.get("a")).data == b"1"


@pytest.mark.parametrize("effect", [False, True])
async def test_a_commit_whose_request_hangs_is_in_the_log_once(
    hanging: HangingStore, hedging: HedgingObjectStore, effect: bool
) -> None:
    writer = WalWriter(Wal(hedging, 0, LightWalCodec(), ShardLog(hedging, 0, Runtime())), Runtime(), "writer")
    await writer.claim()
    header = writer.next_header()
    hanging.hangs, hanging.effect = 1, effect
    async with asyncio.timeout(60):
        await writer.commit(PreparedEntry(header, LightWalCodec().encode(header, NO_RECORDS)))
    log = Wal(hanging, 0, LightWalCodec(), ShardLog(hanging, 0, Runtime()))
    ids = [(await log.header(info.number)).entry_id async for info in log.entries()]
    assert ids[1:] == [header.entry_id]
    assert hedging.hedges == 1


async def test_a_store_that_is_slow_as_a_whole_is_not_asked_twice_for_everything(
    hanging: HangingStore, hedging: HedgingObjectStore
) -> None:
    await hanging.put("a", b"1")
    hanging.requests.clear()
    asked = 4 * HEDGES_SAVED_MAX
    hanging.hangs = 1_000
    asking = [asyncio.create_task(hedging.get("a", SOME)) for _ in range(asked)]
    await asyncio.sleep(5 * AFTER_S)
    assert len(hanging.requests) - asked == hedging.hedges
    assert HEDGES_SAVED_MAX <= hedging.hedges <= HEDGES_SAVED_MAX + asked // 20 + 1
    hanging.gate.set()
    await asyncio.gather(*asking)


async def test_a_caller_that_is_gone_takes_both_with_it(hanging: HangingStore, hedging: HedgingObjectStore) -> None:
    hanging.hangs = 2
    asking = asyncio.create_task(hedging.get("a", SOME))
    await until(lambda: len(hanging.requests) == 2)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert len(asyncio.all_tasks()) == 1


async def test_of_two_refusals_that_arrive_together_none_is_taken_for_a_defect(
    hanging: HangingStore, hedging: HedgingObjectStore
) -> None:
    defects: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, defect: defects.append(defect))
    hanging.hangs, hanging.late = 2, Conflict("another was first")
    refused = asyncio.ensure_future(_is_refused(hedging))
    await until(lambda: len(hanging.requests) == 2)
    hanging.gate.set()
    assert await refused
    hanging.late = None
    gc.collect()  # a task whose exception nobody retrieved reports it when it is deleted
    assert defects == []


async def _is_refused(store: HedgingObjectStore) -> bool:
    """Keeps no exception, because an exception would keep the tasks that raised it."""
    try:
        await store.create("a", b"x")
    except Conflict:
        return True
    return False
