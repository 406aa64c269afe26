"""When a partition is compacted and up to which offset, by Kafka's settings; how long tombstones have stayed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tidelog.storage.manifests.segment_columns import columns_of
from tidelog.storage.manifests.shard_values import Cleaning, ColdState, SegmentSpan, TopicSegment
from tidelog.storage.manifests.topic_state import TopicBase, TopicState
from tidelog.storage.upkeep.compact_plan import (
    CLEANING_STEPS,
    CLEANINGS_MAX,
    Stretch,
    cleaned,
    compaction_due_at_ms,
    plan_compaction,
    ripe_stretches,
)
from tidelog.storage.upkeep.rules import UpkeepRules

NOW_MS = 1_000_000
RULES = UpkeepRules(compacts=True, deletes=False)


def topic_of(*sizes: int, clean: int = 0, timestamps_ms: tuple[int, ...] = (), stored: int = 0) -> TopicState:
    """Runs of 10 offsets each with the given sizes, in two partitions by turns, of which partition 1 has the same
    offsets again; the first `clean` of them are clean, the first `stored` are in the list."""
    times_ms = timestamps_ms or (0,) * len(sizes)
    segments = [
        TopicSegment(f"s{at}", at, 0, size, "", time_ms, time_ms, 0, spans_at(at))
        for at, (size, time_ms) in enumerate(zip(sizes, times_ms, strict=True))
    ]
    cleaned_at = {span.partition: span.next_offset for at in range(clean) for span in spans_at(at)}
    ends = {span.partition: span.next_offset for at in range(len(sizes)) for span in spans_at(at)}
    states = {at: ColdState(cold_end=end, clean_end=cleaned_at.get(at, 0)) for at, end in ends.items()}
    base = TopicBase(columns_of(segments[:stored]))
    return TopicState("web", len(sizes), None, base, added=columns_of(segments[stored:]), partitions=states)


def spans_at(run: int) -> tuple[SegmentSpan, ...]:
    """Every run has ten records of partition 0, every second one also of partition 1."""
    first = SegmentSpan(0, 10 * run, 10 * run + 9, 10, 0)
    return (first, SegmentSpan(1, 5 * run, 5 * run + 9, 10, 0)) if run % 2 else (first,)


def plan_end(topic: TopicState, rules: UpkeepRules = RULES) -> int | None:
    """The end of the pass that is due in partition 0, or None. Checks that the due time and the plan agree, and that
    the clean ends of both partitions move together."""
    due_at_ms = compaction_due_at_ms(topic, rules, NOW_MS)
    plan = plan_compaction(topic, rules, NOW_MS)
    assert (plan is not None) == (due_at_ms is not None and due_at_ms <= NOW_MS)
    if plan is None:
        return None
    covered = [span for at in range(plan.clean_ends[0] // 10) for span in spans_at(at)]
    assert plan.clean_ends == {span.partition: span.next_offset for span in covered}
    return plan.clean_ends[0]


def test_nothing_is_due_without_the_policy_or_without_something_dirty() -> None:
    assert plan_end(topic_of(100), replace(RULES, compacts=False)) is None
    assert plan_end(topic_of(100, 100, clean=2)) is None
    assert plan_end(topic_of()) is None


@pytest.mark.parametrize(("dirty", "due"), [(99, False), (100, False), (101, True)])
def test_the_dirty_part_has_to_be_more_than_the_ratio(dirty: int, due: bool) -> None:
    assert plan_end(topic_of(100, dirty, clean=1)) == (20 if due else None)


def test_a_first_pass_is_due_at_once_unless_the_ratio_is_1() -> None:
    assert plan_end(topic_of(1)) == 10
    assert plan_end(topic_of(1), replace(RULES, min_cleanable_dirty_ratio=1.0)) is None


def test_a_ratio_of_0_cleans_whatever_is_dirty() -> None:
    assert plan_end(topic_of(10**9, 1, clean=1), replace(RULES, min_cleanable_dirty_ratio=0.0)) == 20


def test_a_pass_goes_over_the_clean_part_too() -> None:
    plan = plan_compaction(topic_of(1, 100, 1, clean=1), RULES, NOW_MS)
    assert plan is not None
    assert [segment.key for segment in plan.segments] == ["s0", "s1", "s2"]


# ---- min.compaction.lag.ms


def test_a_segment_with_a_record_within_the_lag_ends_the_pass() -> None:
    topic = topic_of(1, 1, 1, timestamps_ms=(0, NOW_MS - 99, 0))
    assert plan_end(topic, replace(RULES, min_compaction_lag_ms=100)) == 10
    assert plan_end(topic, replace(RULES, min_compaction_lag_ms=99)) == 30


def test_records_held_by_the_lag_do_not_count_as_dirty() -> None:
    topic = topic_of(100, 60, 60, clean=1, timestamps_ms=(0, 0, NOW_MS))
    rules = replace(RULES, min_compaction_lag_ms=50)
    assert plan_end(topic, rules) is None
    assert compaction_due_at_ms(topic, rules, NOW_MS) == NOW_MS + 50


def test_a_record_of_the_future_is_compacted_unless_there_is_a_lag() -> None:
    topic = topic_of(1, timestamps_ms=(NOW_MS + 10**9,))
    assert plan_end(topic) == 10
    assert plan_end(topic, replace(RULES, min_compaction_lag_ms=1)) is None


# ---- max.compaction.lag.ms


def test_a_record_that_has_waited_longest_makes_a_pass_due() -> None:
    topic = topic_of(10**6, 1, 1, clean=1, timestamps_ms=(0, NOW_MS, NOW_MS - 500))
    assert plan_end(topic, replace(RULES, max_compaction_lag_ms=499)) == 30
    assert plan_end(topic, replace(RULES, max_compaction_lag_ms=500)) is None
    assert compaction_due_at_ms(topic, replace(RULES, max_compaction_lag_ms=700), NOW_MS) == NOW_MS + 201


def test_the_shortest_lag_holds_even_what_is_overdue() -> None:
    topic = topic_of(10**6, 1, clean=1, timestamps_ms=(0, NOW_MS - 500))
    rules = replace(RULES, max_compaction_lag_ms=100, min_compaction_lag_ms=600)
    assert compaction_due_at_ms(topic, rules, NOW_MS) == NOW_MS + 100


segment_lists = st.lists(st.tuples(st.integers(1, 1_000), st.integers(0, 2 * NOW_MS)), max_size=8)


@given(
    parts=segment_lists,
    clean=st.integers(0, 8),
    stored=st.integers(0, 8),
    ratio=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
    min_lag_ms=st.sampled_from([0, 1, 1_000, NOW_MS]),
    max_lag_ms=st.sampled_from([1, 1_000, NOW_MS, 2**63 - 1]),
)
def test_a_pass_is_due_at_the_time_that_was_foretold_and_not_before(
    parts: list[tuple[int, int]], clean: int, stored: int, ratio: float, min_lag_ms: int, max_lag_ms: int
) -> None:
    topic = topic_of(
        *(size for size, _ in parts),
        clean=min(clean, len(parts)),
        timestamps_ms=tuple(at for _, at in parts),
        stored=stored,
    )
    rules = replace(
        RULES,
        min_cleanable_dirty_ratio=ratio,
        min_compaction_lag_ms=min_lag_ms,
        max_compaction_lag_ms=max_lag_ms,
    )
    due_at_ms = compaction_due_at_ms(topic, rules, NOW_MS)
    if due_at_ms is None:
        assert plan_compaction(topic, rules, 10**12) is None
        return
    plan = plan_compaction(topic, rules, due_at_ms)
    assert plan is not None
    assert topic.partition(0).clean_end < plan.clean_ends[0] <= topic.partition(0).cold_end
    assert list(plan.segments) == list(topic.segments)[: len(plan.segments)]
    if due_at_ms > NOW_MS:
        assert plan_compaction(topic, rules, due_at_ms - 1) is None


# ---- tombstones

HOUR_MS = 3_600_000
RETENTION_MS = CLEANING_STEPS * HOUR_MS


def test_tombstones_are_ripe_where_they_have_stayed_their_time() -> None:
    cleanings = (Cleaning(10, HOUR_MS), Cleaning(20, 2 * HOUR_MS), Cleaning(30, 3 * HOUR_MS))
    assert ripe_stretches(cleanings, HOUR_MS, 3 * HOUR_MS) == (Stretch(0, 10), Stretch(10, 20))
    assert ripe_stretches(cleanings, HOUR_MS, 2 * HOUR_MS - 1) == ()


def test_a_clock_that_ran_ahead_holds_only_the_tombstones_of_that_pass() -> None:
    cleanings = (Cleaning(10, 10**15), Cleaning(20, HOUR_MS))
    assert ripe_stretches(cleanings, HOUR_MS, 2 * HOUR_MS) == (Stretch(10, 20),)


def test_passes_at_about_the_same_time_are_one() -> None:
    state = cleaned(ColdState(cold_end=30), 10, RETENTION_MS, HOUR_MS + 1)
    state = cleaned(state, 20, RETENTION_MS, 2 * HOUR_MS)
    assert state.cleanings == (Cleaning(20, 2 * HOUR_MS),)
    state = cleaned(state, 30, RETENTION_MS, 2 * HOUR_MS + 1)
    assert state.cleanings == (Cleaning(20, 2 * HOUR_MS), Cleaning(30, 3 * HOUR_MS))


def test_a_pass_that_goes_no_further_is_not_noted() -> None:
    state = cleaned(ColdState(cold_end=20), 20, RETENTION_MS, HOUR_MS)
    assert cleaned(state, 10, RETENTION_MS, 9 * HOUR_MS) is state


def test_the_last_record_of_a_partition_is_in_no_ripe_stretch() -> None:
    topic = topic_of(1, 1, 1)
    states = {
        at: structs.replace(state, cleanings=(Cleaning(15, 1), Cleaning(40, 2)))
        for at, state in topic.partitions.items()
    }
    plan = plan_compaction(structs.replace(topic, partitions=states), RULES, RULES.delete_retention_ms + 2)
    assert plan is not None
    assert plan.ripe == {0: (Stretch(0, 15), Stretch(15, 29)), 1: (Stretch(0, 14),)}


@given(
    times_ms=st.lists(st.integers(0, 100 * HOUR_MS), min_size=1, max_size=120),
    retention_ms=st.sampled_from([0, 1, 7, HOUR_MS, RETENTION_MS]),
    asked_ms=st.integers(0, 200 * HOUR_MS),
)
def test_no_tombstone_is_ripe_before_its_time_and_few_cleanings_are_kept(
    times_ms: list[int], retention_ms: int, asked_ms: int
) -> None:
    """For any clock: each stretch waits for `retention_ms` after the first pass over it."""
    state = ColdState(cold_end=10_000)
    for number, now_ms in enumerate(times_ms, start=1):
        state = cleaned(state, 10 * number, retention_ms, now_ms)
    assert len(state.cleanings) <= CLEANINGS_MAX
    assert state.cleanings[-1].end_offset == state.clean_end == 10 * len(times_ms)
    # Tombstones that could be removed when a cleaning was recorded are no longer distinguished.
    asked_ms = max(asked_ms, *times_ms)
    ripe = ripe_stretches(state.cleanings, retention_ms, asked_ms)
    for number, now_ms in enumerate(times_ms):
        if any(stretch.begin_offset <= 10 * number < stretch.end_offset for stretch in ripe):
            assert now_ms + retention_ms <= asked_ms
    if asked_ms >= max(times_ms) + retention_ms + max(1, retention_ms // CLEANING_STEPS):
        assert sum(stretch.end_offset - stretch.begin_offset for stretch in ripe) == state.clean_end
