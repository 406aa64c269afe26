"""Retention works like Kafka's for each partition, although partitions share segments: compared with a model that
removes spans one by one, and by example."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.storage.archive_scenes import ManualClock
from tests.storage.segment_lists import (
    PLACE,
    SHARD,
    SIZES_BYTES,
    TIMES_MS,
    TOPIC,
    TOPIC_ID,
    TOPICS,
    Pass,
    dense,
    log_starts,
    passes_of,
    runs,
    seen,
)

from tidelog.storage.manifests.segment_columns import SegmentColumns, columns_of
from tidelog.storage.manifests.segment_list import FoundSpan
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, applied
from tidelog.storage.manifests.shard_values import ChangeKind, Cleaning, LeaderEpoch
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.upkeep import log_starts as retention_log_starts
from tidelog.storage.upkeep.retention import ExpireTask, plan_expiry
from tidelog.storage.upkeep.rules import DAY_MS, UNLIMITED, UpkeepRules

RULES = st.builds(
    UpkeepRules,
    deletes=st.booleans(),
    compacts=st.booleans(),
    retention_ms=st.just(UNLIMITED) | TIMES_MS,
    retention_bytes=st.just(UNLIMITED) | SIZES_BYTES,
)
FOR_EVER_MS = 2**62
FOR_EVER = UpkeepRules(retention_ms=UNLIMITED)


def after_expiry(topic: TopicState, rules: UpkeepRules, now_ms: int) -> TopicState:
    """`topic` after all that has expired was removed."""
    expiry = plan_expiry(topic, rules, now_ms)
    change = expiry.change(TOPIC) if expiry else None
    if change is None:
        return topic
    before = ShardManifest(SHARD, 0, topics={TOPIC_ID: topic})
    return applied(before, ManifestChange(ChangeKind.EXPIRE, {TOPIC_ID: change})).topics[TOPIC_ID]


def expires(topic: TopicState, rules: UpkeepRules, now_ms: int) -> bool:
    return after_expiry(topic, rules, now_ms) is not topic


def share_bytes(found: FoundSpan) -> int:
    """The stored bytes of a span, by its raw bytes, or by its records if the segment's records are empty."""
    segment = found.segment
    if segment.raw_bytes:
        return int(segment.size_bytes * (found.span.raw_bytes / segment.raw_bytes))
    return int(segment.size_bytes * (found.span.records / segment.records))


def kept_by_model(topic: TopicState, number: int, rules: UpkeepRules, now_ms: int) -> list[FoundSpan]:
    """The rule of Kafka's documentation, one span of a partition at a time."""
    start, kept = topic.partition(number).log_start_offset, list(topic.segments.spans(number))
    while kept:
        oldest, rest_bytes = kept[0], sum(share_bytes(found) for found in kept[1:])
        old = rules.retention_ms >= 0 and now_ms - oldest.segment.max_timestamp_ms > rules.retention_ms
        over = rules.retention_bytes >= 0 and rest_bytes >= rules.retention_bytes
        if not (rules.deletes and (old or over)) and oldest.span.last_offset >= start:
            break
        kept.pop(0)
    return kept


@given(TOPICS, RULES, st.integers(0, 200))
def test_the_spans_that_stay_are_the_models(topic: TopicState, rules: UpkeepRules, now_ms: int) -> None:
    after = after_expiry(topic, rules, now_ms)
    needed = set()
    for number, state in after.all_partitions.items():
        before, kept = topic.partition(number), kept_by_model(topic, number, rules, now_ms)
        begins_at = kept[0].span.base_offset if kept else state.cold_end
        assert state.log_start_offset == max(before.log_start_offset, begins_at)
        assert state.cold_end == before.cold_end
        needed |= {found.segment.key for found in kept}
    assert {segment.key for segment in after.segments} == needed
    assert not expires(after, rules, now_ms)


@given(TOPICS, RULES, st.integers(0, 200))
def test_retention_is_due_exactly_at_its_time_and_not_before(
    topic: TopicState, rules: UpkeepRules, now_ms: int
) -> None:
    due_at_ms = ExpireTask(Runtime()).due_at_ms(seen(topic), rules, now_ms)
    if due_at_ms is None:
        assert not expires(topic, rules, FOR_EVER_MS)
    elif due_at_ms <= now_ms:
        assert expires(topic, rules, now_ms)
    else:
        assert not expires(topic, rules, due_at_ms - 1)
        assert expires(topic, rules, due_at_ms)


# ---- by example


def test_a_segment_just_as_old_as_allowed_stays() -> None:
    topic, rules = dense([Pass({0: 1}, 1_000)]), UpkeepRules(retention_ms=500)
    assert not expires(topic, rules, 1_500)
    assert expires(topic, rules, 1_501)


def test_the_default_is_seven_days_and_any_size() -> None:
    topic = dense([Pass({0: 1}, 0, 1 << 50), Pass({0: 1}, 1, 1 << 50)])
    assert not expires(topic, UpkeepRules(), 7 * DAY_MS)
    assert runs(after_expiry(topic, UpkeepRules(), 7 * DAY_MS + 1)) == [1]


def test_a_timestamp_in_the_future_keeps_its_segment_and_all_later_ones_of_its_partitions() -> None:
    topic, rules = dense([Pass({0: 1, 1: 1}), Pass({0: 1}, 10_000), Pass({0: 1, 1: 1})]), UpkeepRules(retention_ms=100)
    after = after_expiry(topic, rules, 5_000)
    assert (runs(after), log_starts(after)) == ([1, 2], {0: 1, 1: 2})
    assert not len(after_expiry(topic, rules, 10_101).segments)


def test_a_segment_stays_whole_until_it_has_no_records_of_any_partition() -> None:
    """Partition 0 has its bytes in the later segments, partition 1 has none there."""
    topic = dense([Pass({0: 1, 1: 1}, size_bytes=20), Pass({0: 1}, size_bytes=10), Pass({0: 1}, size_bytes=10)])
    rules = replace(FOR_EVER, retention_bytes=10)
    after = after_expiry(topic, rules, 0)
    assert (runs(after), log_starts(after)) == ([0, 2], {0: 2, 1: 0})
    assert [found.span.base_offset for found in after.segments.spans(1)] == [0]
    assert ExpireTask(Runtime()).due_at_ms(seen(after), rules, 0) is None, "the dead span is no reason to run again"


def test_size_takes_spans_while_the_rest_has_enough_and_counts_a_partitions_share() -> None:
    """A tenth of each segment's raw bytes is partition 0's, and two elevenths of the records."""
    topic = dense([Pass({0: 2, 1: 9}, size_bytes=100)] * 3)
    assert not expires(topic, replace(FOR_EVER, retention_bytes=UNLIMITED), 0)
    starts = {
        kept: log_starts(after_expiry(topic, replace(FOR_EVER, retention_bytes=kept), 0))
        for kept in (181, 180, 91, 90, 21, 20, 11, 10, 0)
    }
    assert starts[181] == {0: 0, 1: 0}
    assert starts[180] == starts[91] == {0: 0, 1: 9}
    assert starts[90] == starts[21] == {0: 0, 1: 18}
    assert starts[20] == starts[11] == {0: 2, 1: 18}
    assert starts[10] == {0: 4, 1: 18}
    assert starts[0] == {0: 6, 1: 27}


def test_a_compacted_topic_loses_nothing_but_what_lies_below_its_log_starts() -> None:
    rules = UpkeepRules(deletes=False, compacts=True, retention_ms=0, retention_bytes=0)
    passes = [Pass({0: 5, 1: 5}), Pass({0: 5, 1: 5})]
    for starts in ({}, {0: 4, 1: 10}, {0: 5, 1: 4}):
        assert not expires(dense(passes, starts), rules, FOR_EVER_MS)
    assert runs(after_expiry(dense(passes, {0: 5, 1: 7}), rules, FOR_EVER_MS)) == [1]


def test_epochs_and_cleanings_below_the_log_start_go_and_that_of_the_log_start_stays() -> None:
    topic = dense([Pass({0: 5}), Pass({0: 5}, 10_000)])
    state = structs.replace(
        topic.partition(0),
        epochs=(LeaderEpoch(1, 0), LeaderEpoch(2, 3), LeaderEpoch(4, 7)),
        cleanings=(Cleaning(5, 1), Cleaning(8, 2)),
    )
    after = after_expiry(structs.replace(topic, partitions={0: state}), UpkeepRules(retention_ms=0), 5_000).partition(0)
    assert after.log_start_offset == 5
    assert after.epochs == (LeaderEpoch(2, 3), LeaderEpoch(4, 7))
    assert after.cleanings == (Cleaning(8, 2),)


def test_offsets_that_compaction_removed_at_the_log_start_are_no_reason_to_move_it() -> None:
    topic = dense([Pass({0: 5}), Pass({0: 5})])
    [_, second] = topic.segments
    assert not expires(
        structs.replace(topic, base=dense([]).base, added=columns_of([second]), partitions=topic.all_partitions),
        FOR_EVER,
        0,
    )


def test_a_version_removes_a_bounded_number_of_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log starts move at once; the other dead segments leave with the next versions."""
    monkeypatch.setattr(retention_log_starts, "REMOVED_PER_STEP", 2)
    topic, rules = dense([Pass({0: 1, 1: 2})] * 5), UpkeepRules(retention_ms=0)
    left = []
    while expires(topic, rules, 1):
        assert ExpireTask(Runtime()).due_at_ms(seen(topic), rules, 1) == 1
        topic = after_expiry(topic, rules, 1)
        assert log_starts(topic) == {0: 5, 1: 10}
        left.append(runs(topic))
    assert left == [[2, 3, 4], [4], []]


def test_a_topic_without_segments_is_never_due() -> None:
    rules = UpkeepRules(retention_bytes=0)
    assert ExpireTask(Runtime()).due_at_ms(seen(dense([])), rules, FOR_EVER_MS) is None


def test_a_long_list_is_planned_by_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """No segment of the list becomes an object: 100,000 segments are planned in less than 100 ms."""
    topic = dense([Pass({n % 7: 1, 7 + n % 5: 2}, n * 1_000) for n in range(3_000)], listed=2_999)

    def no_object(columns: SegmentColumns, index: int) -> None:
        raise AssertionError(f"segment {index} became an object")

    monkeypatch.setattr(SegmentColumns, "segment", no_object)
    expiry = plan_expiry(topic, UpkeepRules(retention_ms=1_000_000), 2_500_000)
    assert expiry is not None
    change = expiry.change(TOPIC)
    assert change is not None
    assert (len(change.removed), len(change.partitions), expiry.next_at_ms) == (1_500, 12, 2_500_001)


# ---- the task


async def test_the_log_starts_move_in_the_version_in_which_the_segments_leave() -> None:
    clock = ManualClock(now_s=0.0)
    log = ShardLog(MemoryObjectStore(), SHARD, Runtime(clock))
    await log.latest()
    await log.append(passes_of(dense([Pass({0: 5, 1: 2}), Pass({0: 5, 1: 2}, 2_000)])))
    task, rules = ExpireTask(Runtime(clock)), UpkeepRules(retention_ms=1_000)
    assert await task.run(PLACE, log, rules) is None
    clock.now_s = 2.0
    after = await task.run(PLACE, log, rules)
    assert after is not None
    topic = after.topics[TOPIC_ID]
    assert (after.version, log_starts(topic), runs(topic)) == (1, {0: 5, 1: 2}, [1])
    assert after.recorded is not None
    assert after.recorded.kind is ChangeKind.EXPIRE
    [garbage] = after.garbage
    assert (garbage.since_version, garbage.since_ms) == (1, 2_000)


async def test_a_clock_that_is_set_back_deletes_nothing() -> None:
    clock = ManualClock(now_s=10 * DAY_MS / 1000)
    log = ShardLog(MemoryObjectStore(), SHARD, Runtime(clock))
    await log.latest()
    await log.append(passes_of(dense([Pass({0: 5}, 9 * DAY_MS)])))
    task, rules = ExpireTask(Runtime(clock)), UpkeepRules(retention_ms=DAY_MS // 2)
    clock.now_s -= DAY_MS / 1000
    assert await task.run(PLACE, log, rules) is None
    clock.now_s += DAY_MS / 1000
    assert await task.run(PLACE, log, rules) is not None
