"""The floor that only rises, headers by range, and the search for the tail."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import pytest
from tests.simulation.light_codec import NO_RECORDS
from tests.storage.scripted_store import Answer
from tests.storage.shard_log import SHARD, ShardLog

from tidelog.storage.errors import Corrupt, Invalid, NotFound, Unavailable
from tidelog.storage.layout import TopicPartition, floor_key
from tidelog.storage.object_store import LIST_PAGE_MAX
from tidelog.storage.wal.wal import HEADER_TAIL_BYTES, Floor, Wal
from tidelog.storage.wal.wal_entry import PreparedEntry, Span
from tidelog.storage.wal.wal_tail import TailSearch, find_tail

FLOOR_KEY = floor_key(SHARD)


@pytest.fixture
def log() -> ShardLog:
    return ShardLog()


def place(floor: Floor) -> tuple[int, int]:
    return floor.number, floor.epoch


# ---- the floor


async def test_a_new_log_begins_at_entry_zero(log: ShardLog) -> None:
    assert await log.wal.floor() == Floor(0, 0, None)


async def test_the_floor_rises(log: ShardLog) -> None:
    assert place(await log.wal.advance_floor(3, 1)) == (3, 1)
    assert place(await log.wal.advance_floor(5, 2)) == (5, 2)
    assert place(await log.wal.floor()) == (5, 2)


@pytest.mark.parametrize("number", [0, 4, 5])
async def test_the_floor_never_falls(log: ShardLog, number: int) -> None:
    await log.wal.advance_floor(5, 2)
    log.store.taken_requests()
    assert place(await log.wal.advance_floor(number, 9)) == (5, 2)
    assert log.store.requests == [f"get {FLOOR_KEY}"]


async def test_the_epoch_of_the_floor_never_falls(log: ShardLog) -> None:
    await log.wal.advance_floor(5, 7)
    assert place(await log.wal.advance_floor(6, 2)) == (6, 7)


@pytest.mark.parametrize("before", [0, 2], ids=["that would create it", "that would replace it"])
async def test_a_stalled_truncator_cannot_move_the_floor_back(log: ShardLog, before: int) -> None:
    await log.wal.advance_floor(before, 1)

    async def rival_raises_it_between_read_and_write() -> None:
        log.store.before = partial(log.others_wal.advance_floor, 9, 3)

    log.store.before = rival_raises_it_between_read_and_write
    assert place(await log.wal.advance_floor(5, 2)) == (9, 3)
    assert place(await log.others_wal.floor()) == (9, 3)


async def test_truncators_that_race_leave_the_highest(log: ShardLog) -> None:
    wals = [Wal(log.bucket, SHARD, log.wal.codec) for _ in range(8)]
    await asyncio.gather(*(wal.advance_floor(number + 1, 1) for number, wal in enumerate(wals)))
    assert place(await log.wal.floor()) == (8, 1)


async def test_raising_the_floor_again_after_a_lost_answer_is_right(log: ShardLog) -> None:
    log.store.answers.extend([Answer(), Answer(Unavailable("reset"), after_effect=True)])
    with pytest.raises(Unavailable):
        await log.wal.advance_floor(4, 1)
    assert place(await log.wal.advance_floor(4, 1)) == (4, 1)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"format_version": 2, "number": 1, "epoch": 1}',
        b'{"format_version": 1, "number": -1, "epoch": 1}',
        b'{"format_version": 1, "number": true, "epoch": 1}',
        b'{"format_version": 1, "number": "1", "epoch": 1}',
        b'{"format_version": 1, "number": 1}',
    ],
)
async def test_a_floor_that_is_none_is_corrupt_by_name(log: ShardLog, document: bytes) -> None:
    await log.bucket.put(FLOOR_KEY, document)
    with pytest.raises(Corrupt, match=FLOOR_KEY):
        await log.wal.floor()


async def test_the_floor_names_its_format_version(log: ShardLog) -> None:
    await log.wal.advance_floor(2, 1)
    stored = json.loads((await log.bucket.get(FLOOR_KEY)).data)
    assert {name: stored[name] for name in ("format_version", "number", "epoch")} == {
        "format_version": 1,
        "number": 2,
        "epoch": 1,
    }


async def test_a_floor_of_before_there_were_checksums_rises(log: ShardLog) -> None:
    await log.bucket.put(FLOOR_KEY, b'{"format_version": 1, "number": 4, "epoch": 2}')
    assert place(await log.wal.floor()) == (4, 2)
    assert place(await log.wal.advance_floor(5, 2)) == (5, 2)


async def test_a_flipped_bit_of_the_floor_is_noticed_or_means_the_same(log: ShardLog) -> None:
    await log.wal.advance_floor(1_234, 56)
    good = (await log.bucket.get(FLOOR_KEY)).data
    noticed = 0
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        await log.bucket.put(FLOOR_KEY, bytes(bad))
        try:
            assert place(await log.wal.floor()) == (1_234, 56)
        except Corrupt:
            noticed += 1
    assert noticed > 8 * len(b"123456")


async def test_the_content_of_the_floor_never_recurs(log: ShardLog) -> None:
    """The store may derive its version from the content: a stalled truncator must find another version than the one it
    read."""
    seen = set()
    for number in range(1, 200):
        await log.wal.advance_floor(number, number // 7)
        seen.add((await log.bucket.get(FLOOR_KEY)).data)
    assert len(seen) == 199


# ---- entries


async def test_an_entry_in_the_log_is_not_deleted(log: ShardLog) -> None:
    await log.rival_commits(2)
    await log.wal.advance_floor(1, 1)
    await log.wal.delete(0)
    with pytest.raises(Invalid, match="raise the floor first"):
        await log.wal.delete(1)
    assert [info.number async for info in log.wal.entries()] == [1, 2]


async def test_a_deletion_knows_of_a_floor_that_another_raised(log: ShardLog) -> None:
    await log.rival_commits(2)
    await log.others_wal.advance_floor(2, 1)
    await log.wal.delete(1)
    with pytest.raises(NotFound):
        await log.wal.read(1)


async def test_a_header_takes_one_request_of_the_objects_end(log: ShardLog) -> None:
    await log.rival_commits()
    assert (await log.wal.header(1)).writer_id == "rival"
    assert log.store.requests == [f"get {log.wal.key(1)}"]


async def test_a_long_header_takes_two_requests_once_and_then_one(log: ShardLog) -> None:
    await log.rival.claim()
    spans = tuple(Span(TopicPartition("t", n), 0, 1, 0) for n in range(HEADER_TAIL_BYTES // 8))
    for _ in range(2):
        header = log.rival.next_header(spans=spans)
        await log.rival.commit(PreparedEntry(header, log.wal.codec.encode(header, NO_RECORDS)))
    assert len((await log.wal.header(1)).spans) == len(spans)
    assert len(log.store.taken_requests()) == 2
    assert len((await log.wal.header(2)).spans) == len(spans)
    assert len(log.store.taken_requests()) == 1


async def test_a_header_longer_than_its_object_is_corrupt(log: ShardLog) -> None:
    await log.bucket.put(log.wal.key(0), b"short000fffff")
    with pytest.raises(Corrupt, match="the object has 13"):
        await log.wal.header(0)


@pytest.mark.parametrize("method", ["header", "read"])
async def test_an_entry_under_anothers_number_is_corrupt(log: ShardLog, method: str) -> None:
    await log.rival_commits()
    body = (await log.bucket.get(log.wal.key(1))).data
    await log.bucket.put(log.wal.key(2), body)
    with pytest.raises(Corrupt, match=rf"{log.wal.key(2)}: holds entry 1 of shard {SHARD}"):
        await getattr(log.wal, method)(2)


# ---- the tail


async def test_the_tail_of_a_new_log(log: ShardLog) -> None:
    tail = await find_tail(log.wal)
    assert (tail.next_seq, tail.epoch) == (0, 0)
    assert log.store.requests == [f"get {FLOOR_KEY}", f"list wal/{SHARD:04d}/0"]


async def test_the_tail_takes_three_requests(log: ShardLog) -> None:
    await log.rival_commits(3)
    await log.rival_commits(1)
    await log.others_wal.advance_floor(2, 1)
    tail = await find_tail(log.wal)
    assert (tail.floor.number, tail.next_seq, tail.epoch) == (2, 6, 2)
    assert len(log.store.requests) == 3


async def test_the_tail_of_an_emptied_log_has_the_epoch_of_the_floor(log: ShardLog) -> None:
    await log.rival_commits(3)
    await log.truncate(4)
    tail = await find_tail(log.wal)
    assert (tail.next_seq, tail.epoch) == (4, 1)


async def test_the_tail_of_a_log_of_more_than_one_page(log: ShardLog) -> None:
    await log.rival_commits(LIST_PAGE_MAX)
    assert (await find_tail(log.wal)).next_seq == LIST_PAGE_MAX + 1
    assert len(log.store.requests) == 4


@pytest.mark.parametrize("request_before", [1, 2], ids=["before the listing", "before the header"])
async def test_a_log_truncated_under_the_search_is_searched_again(log: ShardLog, request_before: int) -> None:
    await log.rival_commits(3)
    truncations = iter([None] * request_before + [4])

    async def truncate_then() -> None:
        number = next(truncations, None)
        if number is not None:
            await log.truncate(number)
            await log.rival_commits(1)
        else:
            log.store.before = truncate_then

    log.store.before = truncate_then
    tail = await find_tail(log.wal)
    assert (tail.floor.number, tail.next_seq, tail.epoch) == (4, 6, 2)


@pytest.mark.parametrize("lost", [(2,), (1, 2), (0, 2)])
async def test_a_log_with_lost_entries_ends_behind_its_greatest_number(log: ShardLog, lost: tuple[int, ...]) -> None:
    await log.rival_commits(3)
    for seq in lost:
        await log.bucket.delete(log.wal.key(seq))
    if 0 in lost:  # so that the start of the log is known
        await log.bucket.put(FLOOR_KEY, b'{"format_version": 1, "number": 0, "epoch": 0}')
    tail = await find_tail(log.wal)
    assert (tail.next_seq, tail.epoch) == (4, 1)


async def test_a_log_that_lost_its_floor_is_corrupt_by_name(log: ShardLog) -> None:
    await log.rival_commits(3)
    await log.truncate(2)
    await log.bucket.delete(FLOOR_KEY)
    with pytest.raises(Corrupt, match=FLOOR_KEY):
        await find_tail(log.wal)


async def test_each_damaged_entry_at_the_end_counts_as_an_epoch(log: ShardLog) -> None:
    await log.rival_commits(3)
    for seq in (2, 3):
        await log.bucket.put(log.wal.key(seq), b"no entry")
    tail = await find_tail(log.wal)
    assert (tail.next_seq, tail.epoch) == (4, 3)


async def test_a_log_of_nothing_but_damage_is_corrupt_by_name(log: ShardLog) -> None:
    await log.rival_commits(3)
    for seq in range(4):
        await log.bucket.put(log.wal.key(seq), b"no entry")
    with pytest.raises(Corrupt, match=log.wal.key(0)):
        await find_tail(log.wal)


async def test_a_search_that_knows_of_entries_lists_from_the_last_of_them_on() -> None:
    log = ShardLog()
    await log.rival_commits(5)
    search = TailSearch(log.wal, known_end=4)
    log.store.taken_requests()
    while (tail := await search.step()) is None:
        pass
    assert (tail.next_seq, tail.epoch) == (6, 1)
    assert len(log.store.taken_requests()) == 3


@pytest.mark.parametrize("known_end", [4, 6, 7, 9])
async def test_results_of_a_search_are_dropped_when_the_log_is_truncated_beyond_them(known_end: int) -> None:
    log = ShardLog()
    await log.rival_commits(5)
    await log.truncate(6)
    search = TailSearch(log.wal, known_end=known_end)
    while (tail := await search.step()) is None:
        pass
    assert (tail.floor.number, tail.next_seq, tail.epoch) == (6, 6, 1)
