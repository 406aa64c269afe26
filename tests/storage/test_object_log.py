"""Numbered entries under one prefix: appending, ranges, listing by pages, neighbours."""

from __future__ import annotations

import asyncio

import pytest
from tests.storage.scripted_store import ScriptedObjectStore

from tidelog.storage.errors import Conflict, NotFound
from tidelog.storage.object_log import ObjectLog
from tidelog.storage.object_store import LIST_PAGE_MAX, ByteRange
from tidelog.storage.stores.memory import MemoryObjectStore

PREFIX = "meta/"


@pytest.fixture
def store() -> ScriptedObjectStore:
    return ScriptedObjectStore(MemoryObjectStore())


@pytest.fixture
def log(store: ScriptedObjectStore) -> ObjectLog:
    return ObjectLog(store, PREFIX, ".json")


async def fill(log: ObjectLog, numbers: range) -> None:
    for number in numbers:
        await log.create(number, str(number).encode())


async def numbers(log: ObjectLog, start: int = 0) -> list[int]:
    return [number async for number in log.numbers(start)]


async def test_an_entry_reads_back_whole_and_by_range(log: ObjectLog) -> None:
    await log.create(0, b"abcdef")
    assert (await log.read(0)).data == b"abcdef"
    assert (await log.read(0, ByteRange(1, 3))).data == b"bcd"
    assert (await log.read(0, ByteRange(-2))).data == b"ef"


async def test_a_number_is_given_once(log: ObjectLog) -> None:
    await log.create(4, b"first")
    with pytest.raises(Conflict):
        await log.create(4, b"second")
    assert (await log.read(4)).data == b"first"


async def test_of_racing_appends_one_wins(log: ObjectLog) -> None:
    results = await asyncio.gather(*(log.create(0, b"%d" % n) for n in range(16)), return_exceptions=True)
    assert sum(isinstance(result, Conflict) for result in results) == 15


async def test_an_entry_that_is_not_there_is_not_found(log: ObjectLog) -> None:
    with pytest.raises(NotFound):
        await log.read(0)


async def test_keys_sort_as_their_numbers(log: ObjectLog) -> None:
    assert log.key(7) == "meta/00000000000000000007.json"
    assert log.key(9) < log.key(10) < log.key(10**18)


async def test_an_empty_log_continues_at_the_floor_given(log: ObjectLog) -> None:
    assert await numbers(log) == []
    assert await log.next_number() == 0
    assert await log.next_number(5) == 5


@pytest.mark.parametrize(("start", "expected"), [(0, [2, 3, 4]), (2, [2, 3, 4]), (3, [3, 4]), (4, [4]), (5, [])])
async def test_numbers_begin_where_asked(log: ObjectLog, start: int, expected: list[int]) -> None:
    await fill(log, range(2, 5))
    assert await numbers(log, start) == expected
    assert await log.next_number(start) == max([start, *(n + 1 for n in expected)])


async def test_neighbours_are_passed_over(store: ScriptedObjectStore, log: ObjectLog) -> None:
    await fill(log, range(2))
    for name in ("_floor", "00000000000000000009.json.tmp", "000009.json", "00000000000000000008.parquet", "a/b"):
        await store.put(PREFIX + name, b"")
    assert await numbers(log) == [0, 1]


async def test_a_listing_takes_a_request_a_page(store: ScriptedObjectStore, log: ObjectLog) -> None:
    await fill(log, range(LIST_PAGE_MAX + 1))
    store.taken_requests()
    assert await log.next_number() == LIST_PAGE_MAX + 1
    assert store.taken_requests() == [f"list {PREFIX}0"] * 2
    assert await numbers(log, 500) == list(range(500, LIST_PAGE_MAX + 1))
    assert store.taken_requests() == [f"list {PREFIX}0"]


async def test_a_page_full_of_neighbours_does_not_end_the_listing(store: ScriptedObjectStore, log: ObjectLog) -> None:
    for number in range(LIST_PAGE_MAX + 1):
        await store.put(f"{PREFIX}0000-{number:06d}", b"")
    await log.create(10**18, b"far")
    assert await numbers(log) == [10**18]


@pytest.mark.parametrize("count", [0, 1, 999, 1_000, 1_001, 2_500, 40_000])
async def test_the_newest_entry_is_found_in_few_requests(
    store: ScriptedObjectStore, log: ObjectLog, count: int
) -> None:
    await fill(log, range(count))
    for neighbour in range(LIST_PAGE_MAX + 1):
        await store.put(f"{PREFIX}_history/{neighbour:06d}", b"")
    for known in {-1, 0, count - 2, count - 1} & set(range(-1, count)):
        store.taken_requests()
        assert await log.newest(known) == count - 1
        assert len(store.taken_requests()) <= (1 if count - 1 - known < LIST_PAGE_MAX else 14)


async def test_the_newest_entry_is_found_beyond_gaps(log: ObjectLog) -> None:
    """For example where old versions were deleted and a few kept."""
    await fill(log, range(0, 1_500, 2))
    await fill(log, range(9_000, 11_017))
    assert await log.newest() == await log.newest(9_000) == 11_016
    await log.create(10**18, b"far")
    assert await log.newest() == 10**18


async def test_a_listing_tells_the_sizes(log: ObjectLog) -> None:
    await log.create(0, b"")
    await log.create(1, b"four")
    infos = [info async for info in log.entries()]
    assert [(info.number, info.size_bytes) for info in infos] == [(0, 0), (1, 4)]
    assert all(info.modified_ms > 0 for info in infos)


async def test_a_deleted_entry_is_gone_and_may_be_deleted_again(log: ObjectLog) -> None:
    await fill(log, range(3))
    for _ in range(2):
        await log.delete(1)
    assert await numbers(log) == [0, 2]
