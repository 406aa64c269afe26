"""Log compaction: which records stay, which go, and which are not rewritten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from tests.storage.upkeep.compaction_scenes import RULES, Topic, puts, written
from tests.storage.upkeep.merge_scenes import PLACE, encoded, stored

from tidelog.storage.errors import Corrupt
from tidelog.storage.layout import shard_segment_id
from tidelog.storage.manifests.shard_values import ChangeKind, TopicSegment
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb
from tidelog.storage.upkeep import compact

DAY_S = 86_400


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return Topic(tmp_path / "spill")


def offsets_of(segment: TopicSegment) -> tuple[int, int]:
    return segment.spans[0].base_offset, segment.spans[-1].last_offset


async def test_the_newest_record_of_each_key_stays_at_its_offset(topic: Topic) -> None:
    await topic.append(puts("abca"))
    await topic.append(puts("bda"))
    manifest = await topic.compact()
    assert manifest is not None
    assert await topic.offsets() == [2, 4, 5, 6]
    state = await topic.partition()
    assert (state.clean_end, state.cold_end) == (7, 7)
    assert manifest.recorded is not None
    assert manifest.recorded.kind is ChangeKind.COMPACT
    await topic.check()


async def test_a_run_that_loses_nothing_keeps_its_objects(topic: Topic) -> None:
    for keys in ("ab", "xy", "ac"):
        await topic.append(puts(keys))
    before = await topic.segments()
    manifest = await topic.compact()
    assert manifest is not None
    after = await topic.segments()
    assert after[1:] == before[1:]
    assert (after[0].key != before[0].key, after[0].run) == (True, before[0].run)
    assert [garbage.key for garbage in manifest.garbage] == [before[0].key]
    await topic.check()


async def test_a_log_in_which_every_key_is_there_once_is_only_read(topic: Topic) -> None:
    await topic.append(puts("abc"))
    before = await topic.segments()
    manifest = await topic.compact()
    assert manifest is not None
    assert (await topic.segments(), manifest.garbage, (await topic.partition()).clean_end) == (before, (), 3)


async def test_a_run_of_which_nothing_is_left_disappears(topic: Topic) -> None:
    for keys in ("aab", "ab", "cab"):
        await topic.append(puts(keys))
    assert await topic.compact()
    assert [offsets_of(segment) for segment in await topic.segments()] == [(5, 7)]
    await topic.check()


async def test_neighbours_that_lose_records_are_gathered(topic: Topic) -> None:
    for keys in ("axbx", "cxdx", "exfx", "xz"):
        await topic.append(puts(keys))
    assert await topic.compact()
    segments = await topic.segments()
    assert [(*offsets_of(segment), segment.run) for segment in segments] == [(0, 10, 2), (12, 13, 3)]
    assert {segment.level for segment in segments} == {0}
    await topic.check()


async def test_a_run_may_be_rewritten_as_several_segments(topic: Topic) -> None:
    """For example after segment.bytes was reduced."""
    noise = Random(1).randbytes(9 << 20)
    writes = [(b"key-%05d" % (at % 900), noise[at << 13 : (at + 1) << 13]) for at in range(1_000)]
    await topic.append(dict.fromkeys(range(4), writes))
    assert await topic.compact(replace(RULES, segment_bytes=5 << 20))
    segments = await topic.segments()
    assert [[(span.partition, span.records) for span in each.spans] for each in segments] == [
        [(number, 900)] for number in range(4)
    ]
    assert {segment.run for segment in segments} == {0}
    await topic.check()


async def test_a_segment_that_is_not_the_one_it_should_be_is_not_compacted(topic: Topic) -> None:
    """A sound segment with the same name and length, but another content."""
    await topic.append(puts("aab"))
    manifest, (segment,) = await topic.manifest(), await topic.segments()
    forged = stored({0: written(0, puts("aac"), 1_000_000)})
    other = encoded(forged, shard_segment_id(segment.key), segment.run)
    assert (other.segment.key, other.segment.size_bytes) == (segment.key, segment.size_bytes)
    await topic.store.put(other.segment.key, other.body)
    with pytest.raises(Corrupt, match="another sha256"):
        await topic.compact()
    assert await topic.manifest() == manifest


async def test_records_without_a_key_stay(topic: Topic) -> None:
    """A topic that was not always compacted may hold records without a key. Kafka drops them; here nothing is dropped
    silently."""
    await topic.append(puts("-a-a"))
    await topic.append(puts("-b"))
    await topic.compact()
    assert await topic.offsets() == [0, 2, 3, 4, 5]
    await topic.check()


async def test_a_record_with_neither_key_nor_value_is_no_tombstone(topic: Topic) -> None:
    await topic.append([(None, None), (b"a", b"1"), (b"a", None)])
    await topic.compact()
    topic.clock.now_s += 2 * DAY_S
    await topic.append(puts("b"))
    await topic.compact()
    assert await topic.offsets() == [0, 3]
    await topic.check()


async def test_an_empty_key_is_a_key(topic: Topic) -> None:
    await topic.append([(b"", b"1"), (b"a", b"2"), (b"", b"3")])
    await topic.compact()
    assert await topic.offsets() == [1, 2]
    await topic.check()


async def test_an_empty_value_is_no_tombstone(topic: Topic) -> None:
    await topic.append([(b"a", b""), (b"b", b"2")])
    await topic.compact()
    topic.clock.now_s += 10 * DAY_S
    await topic.append(puts("c"))
    await topic.compact()
    assert await topic.offsets() == [0, 1, 2]


async def test_later_passes_take_away_what_newer_records_supersede(topic: Topic) -> None:
    for keys in ("abc", "abd", "ae", "fa"):
        await topic.append(puts(keys))
        await topic.compact()
        await topic.check()
    assert await topic.offsets() == [2, 4, 5, 7, 8, 9]


async def test_a_pass_is_one_version_a_run_and_due_until_it_is_done(topic: Topic) -> None:
    """So that other topics get their turn in between."""
    for keys in ("ab", "ac", "ad", "az"):
        await topic.append(puts(keys))
    half = replace(RULES, segment_bytes=1, min_cleanable_dirty_ratio=0.7)
    task, log, now_ms = topic.task(), topic.log(), topic.clock.now_ms()
    clean_ends = []
    while await task.run(PLACE, log, half):
        clean_ends.append((await topic.partition()).clean_end)
        assert task.due_at_ms(await topic.seen(), half, now_ms) == (now_ms if clean_ends[-1] < 8 else None)
        await topic.check()
    assert clean_ends == [2, 4, 8]


async def test_a_pass_that_is_forgotten_loses_nothing_but_its_work(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example when more topics are compacted than passes are remembered."""
    monkeypatch.setattr(compact, "PASSES_MAX", 0)
    for keys in ("ab", "ac", "ad", "az"):
        await topic.append(puts(keys))
    await topic.compact(replace(RULES, segment_bytes=1))
    assert await topic.offsets() == [1, 3, 5, 6, 7]
    await topic.check()


async def test_row_groups_of_which_nothing_stays_are_not_read_again(tmp_path: Path) -> None:
    """Four values of 8 MiB, each in its own row group: the first pass reads all of them, the second only the one that
    stays."""
    store = CountingObjectStore(MemoryObjectStore())
    topic = Topic(tmp_path / "spill", store)
    await topic.append([(b"%d" % number, Random(number).randbytes(8 << 20)) for number in range(4)])
    await topic.append([(b"%d" % number, b"new") for number in range(3)])
    log = topic.log()
    await log.latest()
    before = store.usage()
    await topic.task().run(PLACE, log, RULES)
    ends, row_groups, ends_again, row_groups_again = 2, 4, 1, 1
    assert (store.usage() - before).requests(Verb.GET) == ends + row_groups + ends_again + row_groups_again
    assert await topic.offsets() == [3, 4, 5, 6]


# ---- many partitions


async def test_equal_keys_of_two_partitions_are_two_keys(topic: Topic) -> None:
    await topic.append({0: puts("ab"), 1: puts("ab"), 258: puts("b")})
    await topic.append({0: puts("a"), 2: puts("ab")})
    await topic.compact()
    assert [await topic.offsets(number) for number in (0, 1, 2, 258)] == [[1, 2], [0, 1], [0, 1], [0]]
    await topic.check()


async def test_the_clean_ends_of_all_partitions_move_together(topic: Topic) -> None:
    for parts in ({0: puts("ab"), 1: puts("c")}, {1: puts("cd")}, {0: puts("a"), 2: puts("z")}):
        await topic.append(parts)
    task, log, ends = topic.task(), topic.log(), []
    while await task.run(PLACE, log, replace(RULES, segment_bytes=1, min_cleanable_dirty_ratio=0.5)):
        ends.append({number: state.clean_end for number, state in (await topic.state()).all_partitions.items()})
        await topic.check()
    assert ends == [{0: 3, 1: 3, 2: 1}]


async def test_the_last_record_of_every_partition_stays_though_others_make_the_pass_due(topic: Topic) -> None:
    """A ripe tombstone at the end of partition 0, which gets nothing more; partition 1 is written to."""
    no_time = replace(RULES, delete_retention_ms=0)
    await topic.append({0: puts("abAB"), 1: puts("a")})
    await topic.compact(no_time)
    topic.clock.now_s += 2 * DAY_S
    await topic.append({1: puts("a")})
    await topic.compact(no_time)
    assert await topic.offsets(0) == [3]
    assert await topic.offsets(1) == [1]
    await topic.check()


async def test_a_thousand_partitions_of_twenty_runs(tmp_path: Path) -> None:
    topic = Topic(tmp_path / "spill")
    for run in range(20):
        await topic.append({at: [(b"k%d" % (run % 3), b"%d" % run), (b"own %d" % run, b"1")] for at in range(1_000)})
    assert await topic.compact()
    (segment,) = [each for each in await topic.segments() if each.run == max(one.run for one in await topic.segments())]
    assert len(segment.spans) == 1_000
    assert await topic.offsets(0) == await topic.offsets(999) == [*range(1, 35, 2), *range(34, 40)]
    assert {state.clean_end for state in (await topic.state()).all_partitions.values()} == {40}


# ---- tombstones


async def test_a_tombstone_goes_at_the_first_pass_after_its_time(topic: Topic) -> None:
    await topic.append(puts("aAb"))
    await topic.compact()
    assert await topic.offsets() == [1, 2], "what it deleted goes at once"
    topic.clock.now_s += 1.05 * DAY_S
    await topic.append(puts("c"))
    await topic.compact()
    assert await topic.offsets() == [1, 2, 3], "a sixteenth may be added to its time, by rounding"
    topic.clock.now_s += 0.05 * DAY_S
    await topic.append(puts("d"))
    await topic.compact()
    assert await topic.offsets() == [2, 3, 4]
    await topic.check()


async def test_the_time_of_a_tombstone_begins_with_the_first_pass_over_it(topic: Topic) -> None:
    """The age of the record does not matter: a reader may have begun just before that pass."""
    await topic.append(puts("aAb"))
    topic.clock.now_s += 10 * DAY_S
    await topic.compact()
    topic.clock.now_s += 0.9 * DAY_S
    await topic.append(puts("c"))
    await topic.compact()
    assert await topic.offsets() == [1, 2, 3]


async def test_the_last_record_stays_even_if_it_is_a_tombstone(topic: Topic) -> None:
    """So no reader reaches an offset after which there is nothing."""
    no_time = replace(RULES, delete_retention_ms=0)
    await topic.append(puts("aA"))
    await topic.compact(no_time)
    topic.clock.now_s += 2 * DAY_S
    assert await topic.compact(no_time) is None
    assert await topic.offsets() == [1]
    await topic.append(puts("B"))
    await topic.compact(no_time)
    assert await topic.offsets() == [2]
    await topic.check()
