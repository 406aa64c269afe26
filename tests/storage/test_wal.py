"""The floor in the newest manifest, headers by range, and the search for the tail."""

from __future__ import annotations

import pytest
from tests.simulation.light_codec import NO_RECORDS
from tests.storage.log_scene import FLOOR_LIST, SHARD, LogScene, floor_head

from tidelog.storage.errors import Corrupt, Invalid, NotFound
from tidelog.storage.layout import TopicPartition, manifests_prefix
from tidelog.storage.manifests.shard_manifest import ManifestChange, applied, encode_version
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.object_store import LIST_PAGE_MAX
from tidelog.storage.wal.floor import BEGINNING, Floor
from tidelog.storage.wal.floor_trust import GRACE_S_MIN
from tidelog.storage.wal.wal import HEADER_TAIL_BYTES
from tidelog.storage.wal.wal_entry import PreparedEntry, Span
from tidelog.storage.wal.wal_tail import TailSearch, find_tail


@pytest.fixture
def log() -> LogScene:
    return LogScene()


# ---- the floor


async def test_a_new_log_begins_at_entry_zero(log: LogScene) -> None:
    assert await log.wal.floor() == BEGINNING


async def test_the_floor_is_that_of_the_newest_manifest_and_costs_a_head_if_that_is_known(log: LogScene) -> None:
    await log.raise_floor(3, 1)
    assert await log.wal.floor() == Floor(3, 1)
    assert len(log.store.taken_requests()) == 2
    assert await log.wal.floor() == Floor(3, 1)
    assert log.store.taken_requests() == [floor_head(1)]
    await log.raise_floor(5, 2)
    assert await log.wal.floor() == Floor(5, 2)


async def test_long_after_the_last_look_a_head_proves_nothing(log: LogScene) -> None:
    """The next version may have been collected: its absence is no proof (`floor_trust`)."""
    await log.wal.floor()
    for number in range(1, 4):
        await log.raise_floor(number, 1)
    log.clock.now_s += GRACE_S_MIN
    for version in (0, 1):
        await log.manifests.delete(version)
    assert await log.wal.floor() == Floor(3, 1)


async def test_a_floor_whose_read_took_longer_than_the_trust_is_read_again(log: LogScene) -> None:
    """A reader stalls between its LIST and its GET. Meanwhile the version is collected, and a stalled worker creates it
    again with an older floor."""
    await log.raise_floor(2, 1)
    phantom = applied(await log.manifests.latest(), ManifestChange(ChangeKind.MERGE), 0)
    await log.raise_floor(4, 1)

    async def stall() -> None:
        await log.raise_floor(6, 1)
        log.clock.now_s += GRACE_S_MIN
        await log.bucket.put(log.manifests.key(1), encode_version(phantom))

    async def then_stall() -> None:
        log.store.before = stall

    log.store.before = then_stall
    assert await log.wal.floor() == Floor(6, 1)


# ---- entries


async def test_an_entry_in_the_log_is_not_deleted(log: LogScene) -> None:
    await log.rival_commits(2)
    await log.raise_floor(1, 1)
    assert await log.wal.delete_below(1) == 1
    with pytest.raises(Invalid, match="whose floor is 1"):
        await log.wal.delete_below(2)
    assert [info.number async for info in log.wal.entries()] == [1, 2]


async def test_a_deletion_knows_of_a_floor_that_another_raised(log: LogScene) -> None:
    await log.rival_commits(2)
    await log.wal.floor()
    await log.raise_floor(2, 1)
    assert await log.wal.delete_below(2) == 2
    with pytest.raises(NotFound):
        await log.wal.read(1)


async def test_more_entries_than_a_page_has_are_deleted_by_the_page(log: LogScene) -> None:
    await log.rival_commits(LIST_PAGE_MAX + 5)
    await log.raise_floor(LIST_PAGE_MAX + 3, 1)
    await log.wal.floor()
    log.store.taken_requests()
    assert await log.wal.delete_below(LIST_PAGE_MAX + 3) == LIST_PAGE_MAX + 3
    assert len(log.store.requests) == 4
    assert len([info async for info in log.wal.entries()]) == 3
    assert await log.wal.delete_below(LIST_PAGE_MAX + 3) == 0


async def test_a_header_takes_one_request_of_the_objects_end(log: LogScene) -> None:
    await log.rival_commits()
    assert (await log.wal.header(1)).writer_id == "rival"
    assert log.store.requests == [f"get {log.wal.key(1)}"]


async def test_a_long_header_takes_two_requests_once_and_then_one(log: LogScene) -> None:
    await log.rival.claim()
    spans = tuple(Span(TopicPartition("t", n), 0, 1, 0) for n in range(HEADER_TAIL_BYTES // 8))
    for _ in range(2):
        header = log.rival.next_header(spans=spans)
        await log.rival.commit(PreparedEntry(header, log.wal.codec.encode(header, NO_RECORDS)))
    assert len((await log.wal.header(1)).spans) == len(spans)
    assert len(log.store.taken_requests()) == 2
    assert len((await log.wal.header(2)).spans) == len(spans)
    assert len(log.store.taken_requests()) == 1


async def test_a_header_longer_than_its_object_is_corrupt(log: LogScene) -> None:
    await log.bucket.put(log.wal.key(0), b"short000fffff")
    with pytest.raises(Corrupt, match="the object has 13"):
        await log.wal.header(0)


@pytest.mark.parametrize("method", ["header", "read"])
async def test_an_entry_under_anothers_number_is_corrupt(log: LogScene, method: str) -> None:
    await log.rival_commits()
    body = (await log.bucket.get(log.wal.key(1))).data
    await log.bucket.put(log.wal.key(2), body)
    with pytest.raises(Corrupt, match=rf"{log.wal.key(2)}: holds entry 1 of shard {SHARD}"):
        await getattr(log.wal, method)(2)


# ---- the tail


async def test_the_tail_of_a_new_log(log: LogScene) -> None:
    tail = await find_tail(log.wal)
    assert (tail.next_seq, tail.epoch) == (0, 0)
    assert log.store.requests == [FLOOR_LIST, f"list wal/{SHARD:04d}/0"]


async def test_the_tail_takes_four_requests_and_three_if_the_manifest_is_known(log: LogScene) -> None:
    await log.rival_commits(3)
    await log.rival_commits(1)
    await log.raise_floor(2, 1)
    for requests in (4, 3):
        tail = await find_tail(log.wal)
        assert (tail.floor.number, tail.next_seq, tail.epoch) == (2, 6, 2)
        assert len(log.store.taken_requests()) == requests


async def test_the_tail_of_an_emptied_log_has_the_epoch_of_the_floor(log: LogScene) -> None:
    await log.rival_commits(3)
    await log.truncate(4)
    tail = await find_tail(log.wal)
    assert (tail.next_seq, tail.epoch) == (4, 1)


async def test_the_tail_of_a_log_of_more_than_one_page(log: LogScene) -> None:
    await log.rival_commits(LIST_PAGE_MAX)
    assert (await find_tail(log.wal)).next_seq == LIST_PAGE_MAX + 1
    assert len(log.store.requests) == 4


@pytest.mark.parametrize("request_before", [1, 2], ids=["before the listing", "before the header"])
async def test_a_log_truncated_under_the_search_is_searched_again(log: LogScene, request_before: int) -> None:
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


@pytest.mark.parametrize("lost", [(2,), (1, 2)])
async def test_a_log_with_lost_entries_ends_behind_its_greatest_number(log: LogScene, lost: tuple[int, ...]) -> None:
    await log.rival_commits(3)
    for seq in lost:
        await log.bucket.delete(log.wal.key(seq))
    tail = await find_tail(log.wal)
    assert (tail.next_seq, tail.epoch) == (4, 1)


async def test_a_log_whose_first_entry_above_a_floor_is_lost_ends_behind_its_greatest_number(log: LogScene) -> None:
    await log.rival_commits(3)
    await log.truncate(1)
    await log.bucket.delete(log.wal.key(1))
    tail = await find_tail(log.wal)
    assert (tail.floor.number, tail.next_seq, tail.epoch) == (1, 4, 1)


async def test_a_log_that_lost_its_manifest_is_corrupt_by_name(log: LogScene) -> None:
    await log.rival_commits(3)
    await log.truncate(2)
    await log.bucket.delete(log.manifests.key(0))
    with pytest.raises(Corrupt, match=manifests_prefix(SHARD)):
        await find_tail(log.wal)


async def test_each_damaged_entry_at_the_end_counts_as_an_epoch(log: LogScene) -> None:
    await log.rival_commits(3)
    for seq in (2, 3):
        await log.bucket.put(log.wal.key(seq), b"no entry")
    tail = await find_tail(log.wal)
    assert (tail.next_seq, tail.epoch) == (4, 3)


async def test_a_log_of_nothing_but_damage_is_corrupt_by_name(log: LogScene) -> None:
    await log.rival_commits(3)
    for seq in range(4):
        await log.bucket.put(log.wal.key(seq), b"no entry")
    with pytest.raises(Corrupt, match=log.wal.key(0)):
        await find_tail(log.wal)


async def test_a_search_that_knows_of_entries_lists_from_the_last_of_them_on() -> None:
    log = LogScene()
    await log.rival_commits(5)
    search = TailSearch(log.wal, known_end=4)
    log.store.taken_requests()
    while (tail := await search.step()) is None:
        pass
    assert (tail.next_seq, tail.epoch) == (6, 1)
    assert len(log.store.taken_requests()) == 3


@pytest.mark.parametrize("known_end", [4, 6, 7, 9])
async def test_results_of_a_search_are_dropped_when_the_log_is_truncated_beyond_them(known_end: int) -> None:
    log = LogScene()
    await log.rival_commits(5)
    await log.truncate(6)
    search = TailSearch(log.wal, known_end=known_end)
    while (tail := await search.step()) is None:
        pass
    assert (tail.floor.number, tail.next_seq, tail.epoch) == (6, 6, 1)
