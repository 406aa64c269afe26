"""Log compaction: which records stay, which go, and which are not rewritten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.storage.upkeep.compaction_scenes import PLACE, RULES, Partition, puts, written

from tidelog.storage.errors import Corrupt
from tidelog.storage.manifests.manifest import ChangeKind
from tidelog.storage.segments.segment_codec import encode_segment
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb
from tidelog.storage.upkeep import compact

DAY_S = 86_400


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return Partition(tmp_path / "spill")


async def test_the_newest_record_of_each_key_stays_at_its_offset(partition: Partition) -> None:
    await partition.append(puts("abca"))
    await partition.append(puts("bda"))
    manifest = await partition.compact()
    assert manifest is not None
    assert await partition.offsets() == [2, 4, 5, 6]
    assert (manifest.clean_end, manifest.cold_end) == (7, 7)
    assert manifest.change is not None
    assert manifest.change.kind is ChangeKind.COMPACT
    await partition.check()


async def test_a_segment_that_loses_nothing_keeps_its_object(partition: Partition) -> None:
    for keys in ("ab", "xy", "ac"):
        await partition.append(puts(keys))
    before = (await partition.manifest()).segments
    manifest = await partition.compact()
    assert manifest is not None
    assert manifest.segments[1:] == before[1:]
    assert manifest.segments[0].key != before[0].key
    assert [garbage.key for garbage in manifest.garbage] == [before[0].key]
    await partition.check()


async def test_a_log_in_which_every_key_is_there_once_is_only_read(partition: Partition) -> None:
    await partition.append(puts("abc"))
    before = await partition.manifest()
    manifest = await partition.compact()
    assert manifest is not None
    assert (manifest.segments, manifest.garbage, manifest.clean_end) == (before.segments, (), 3)


async def test_a_segment_of_which_nothing_is_left_disappears(partition: Partition) -> None:
    for keys in ("aab", "ab", "cab"):
        await partition.append(puts(keys))
    manifest = await partition.compact()
    assert manifest is not None
    assert [(segment.base_offset, segment.last_offset) for segment in manifest.segments] == [(5, 7)]
    await partition.check()


async def test_neighbours_that_lose_records_are_gathered(partition: Partition) -> None:
    for keys in ("axbx", "cxdx", "exfx", "xz"):
        await partition.append(puts(keys))
    manifest = await partition.compact()
    assert manifest is not None
    assert [(segment.base_offset, segment.last_offset) for segment in manifest.segments] == [(0, 10), (12, 13)]
    assert {segment.level for segment in manifest.segments} == {0}
    await partition.check()


async def test_a_segment_may_be_rewritten_as_several(partition: Partition) -> None:
    """For example after segment.bytes was reduced."""
    await partition.append([(b"key-%05d" % (number % 900), b"v" * 100) for number in range(1_000)])
    [segment] = (await partition.manifest()).segments
    manifest = await partition.compact(replace(RULES, segment_bytes=segment.size_bytes // 4))
    assert manifest is not None
    assert [segment.records for segment in manifest.segments] == [225, 225, 225, 225]
    await partition.check()


async def test_a_segment_that_is_not_the_one_it_should_be_is_not_compacted(partition: Partition) -> None:
    """A sound segment with the same name and length, but another content."""
    await partition.append(puts("aab"))
    manifest = await partition.manifest()
    other = encode_segment(
        PLACE.topic, PLACE.topic_partition, written(0, puts("aac"), 1_000_000), manifest.segments[0].key[-40:-8]
    )
    assert other.segment.key == manifest.segments[0].key
    assert other.segment.size_bytes == manifest.segments[0].size_bytes
    await partition.store.put(other.segment.key, other.body)
    with pytest.raises(Corrupt, match="another sha256"):
        await partition.compact()
    assert await partition.manifest() == manifest


async def test_records_without_a_key_stay(partition: Partition) -> None:
    """A topic that was not always compacted may hold records without a key. Kafka drops them; here nothing is dropped
    silently."""
    await partition.append(puts("-a-a"))
    await partition.append(puts("-b"))
    await partition.compact()
    assert await partition.offsets() == [0, 2, 3, 4, 5]
    await partition.check()


async def test_a_record_with_neither_key_nor_value_is_no_tombstone(partition: Partition) -> None:
    await partition.append([(None, None), (b"a", b"1"), (b"a", None)])
    await partition.compact()
    partition.clock.now_s += 2 * DAY_S
    await partition.append(puts("b"))
    await partition.compact()
    assert await partition.offsets() == [0, 3]
    await partition.check()


async def test_an_empty_key_is_a_key(partition: Partition) -> None:
    await partition.append([(b"", b"1"), (b"a", b"2"), (b"", b"3")])
    await partition.compact()
    assert await partition.offsets() == [1, 2]
    await partition.check()


async def test_an_empty_value_is_no_tombstone(partition: Partition) -> None:
    await partition.append([(b"a", b""), (b"b", b"2")])
    await partition.compact()
    partition.clock.now_s += 10 * DAY_S
    await partition.append(puts("c"))
    await partition.compact()
    assert await partition.offsets() == [0, 1, 2]


async def test_later_passes_take_away_what_newer_records_supersede(partition: Partition) -> None:
    for keys in ("abc", "abd", "ae", "fa"):
        await partition.append(puts(keys))
        await partition.compact()
        await partition.check()
    assert await partition.offsets() == [2, 4, 5, 7, 8, 9]


async def test_a_pass_is_one_version_a_run_and_due_until_it_is_done(partition: Partition) -> None:
    """So that other partitions get their turn in between."""
    for keys in ("ab", "ac", "ad", "az"):
        await partition.append(puts(keys))
    half = replace(RULES, segment_bytes=1, min_cleanable_dirty_ratio=0.7)
    task, log, now_ms = partition.task(), partition.log(), partition.clock.now_ms()
    clean_ends = []
    while manifest := await task.run(PLACE, log, half):
        clean_ends.append(manifest.clean_end)
        assert task.due_at_ms(manifest, half, now_ms) == (now_ms if manifest.clean_end < 8 else None)
        await partition.check()
    assert clean_ends == [2, 4, 8]


async def test_a_pass_that_is_forgotten_loses_nothing_but_its_work(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example when more partitions are compacted than passes are remembered."""
    monkeypatch.setattr(compact, "PASSES_MAX", 0)
    for keys in ("ab", "ac", "ad", "az"):
        await partition.append(puts(keys))
    await partition.compact(replace(RULES, segment_bytes=1))
    assert await partition.offsets() == [1, 3, 5, 6, 7]
    await partition.check()


async def test_row_groups_of_which_nothing_stays_are_not_read_again(tmp_path: Path) -> None:
    """Four values of 8 MiB, each in its own row group: the first pass reads all of them, the second only the one that
    stays."""
    store = CountingObjectStore(MemoryObjectStore())
    partition = Partition(tmp_path / "spill", store)
    await partition.append([(b"%d" % number, bytes([number]) * (8 << 20)) for number in range(4)])
    await partition.append([(b"%d" % number, b"new") for number in range(3)])
    log = partition.log()
    await log.latest()
    before = store.usage()
    await partition.task().run(PLACE, log, RULES)
    footers, row_groups, footers_again, row_groups_again = 2, 4 + 1, 1, 1
    assert (store.usage() - before).requests(Verb.GET) == footers + row_groups + footers_again + row_groups_again
    assert await partition.offsets() == [3, 4, 5, 6]


# ---- tombstones


async def test_a_tombstone_goes_at_the_first_pass_after_its_time(partition: Partition) -> None:
    await partition.append(puts("aAb"))
    await partition.compact()
    assert await partition.offsets() == [1, 2], "what it deleted goes at once"
    partition.clock.now_s += 1.05 * DAY_S
    await partition.append(puts("c"))
    await partition.compact()
    assert await partition.offsets() == [1, 2, 3], "a sixteenth may be added to its time, by rounding"
    partition.clock.now_s += 0.05 * DAY_S
    await partition.append(puts("d"))
    await partition.compact()
    assert await partition.offsets() == [2, 3, 4]
    await partition.check()


async def test_the_time_of_a_tombstone_begins_with_the_first_pass_over_it(partition: Partition) -> None:
    """The age of the record does not matter: a reader may have begun just before that pass."""
    await partition.append(puts("aAb"))
    partition.clock.now_s += 10 * DAY_S
    await partition.compact()
    partition.clock.now_s += 0.9 * DAY_S
    await partition.append(puts("c"))
    await partition.compact()
    assert await partition.offsets() == [1, 2, 3]


async def test_the_last_record_stays_even_if_it_is_a_tombstone(partition: Partition) -> None:
    """So no reader reaches an offset after which there is nothing."""
    no_time = replace(RULES, delete_retention_ms=0)
    await partition.append(puts("aA"))
    await partition.compact(no_time)
    partition.clock.now_s += 2 * DAY_S
    assert await partition.compact(no_time) is None
    assert await partition.offsets() == [1]
    await partition.append(puts("B"))
    await partition.compact(no_time)
    assert await partition.offsets() == [2]
    await partition.check()
