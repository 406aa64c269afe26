"""Planning of merges: when one is due, of which runs, and its place in the latest manifest."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.attempts import attempts, quicker_than
from tests.storage.upkeep.merge_plans import (
    HOUR_MS,
    INPUT_BYTES,
    KIB,
    MIB,
    MINUTE_MS,
    RULES,
    T0,
    merge_due_at_ms,
    plan_merge,
    segment,
    small,
    topic,
)

from tidelog.storage.errors import Conflict
from tidelog.storage.manifests.segment_columns import columns_of
from tidelog.storage.manifests.segment_list import SegmentList
from tidelog.storage.manifests.shard_values import ColdState, SegmentSpan
from tidelog.storage.upkeep import merge_plan
from tidelog.storage.upkeep.merge_plan import FAN_IN_MAX, FAN_IN_MIN, LARGE_RUNS_MAX, Merge, merged
from tidelog.storage.upkeep.rules import DAY_MS
from tidelog.storage.upkeep.topic_runs import FINAL_LEVEL, runs_of, segments_of_runs

# ---- when, and which


def test_nothing_is_due_for_a_single_run_or_final_ones() -> None:
    for segments in (
        [],
        small(1),
        [segment(0, MIB, level=2), segment(1, MIB, level=2)],
        [segment(0, 200 * MIB, level=1)],
    ):
        assert merge_due_at_ms(topic(segments), RULES, T0 + 10**15) is None
        assert plan_merge(topic(segments), RULES, T0 + 10**15) is None


def test_large_runs_wait_until_the_broker_is_idle() -> None:
    """They skip level 1. Small runs after them wait for more."""
    large = topic([segment(0, 128 * MIB), segment(1, 32 * MIB, ms=T0 + 1), segment(2, MIB)])
    assert plan_merge(large, RULES, T0) is None
    assert merge_due_at_ms(large, RULES, T0) == T0 + RULES.segment_ms
    assert plan_merge(large, RULES, T0, idle=True) == Merge(0, 0, FINAL_LEVEL)
    assert merge_due_at_ms(large, RULES, T0, idle=True) == T0
    after = topic([segment(0, 128 * MIB, level=2), segment(1, 32 * MIB), segment(2, MIB)])
    assert plan_merge(after, RULES, T0, idle=True) == Merge(1, 1, FINAL_LEVEL)
    small_one = topic([segment(0, 32 * MIB - 1)])
    assert merge_due_at_ms(small_one, RULES, T0, idle=True) is None


def test_small_runs_between_large_ones_are_merged_while_the_broker_is_busy() -> None:
    sizes = [64, 31, 31, 31, 31, 31, 64, 1]
    segments = [segment(at, mib * MIB) for at, mib in enumerate(sizes)]
    assert plan_merge(topic(segments), RULES, T0) == Merge(1, 5, FINAL_LEVEL)
    assert plan_merge(topic(segments), RULES, T0, idle=True) == Merge(0, 3, FINAL_LEVEL)
    gathered = [segment(0, 64 * MIB), *(segment(at, MIB) for at in range(1, FAN_IN_MIN + 1))]
    assert plan_merge(topic(gathered), RULES, T0) == Merge(1, FAN_IN_MIN, 1)


def test_large_runs_become_final_at_the_age_of_segment_ms() -> None:
    """One at a time, also a single one, and although the broker is busy."""
    due = T0 + RULES.segment_ms
    for sizes, last in (([64], 0), ([128, 128], 0), ([64, 64, 64], 1)):
        waiting = topic([segment(at, mib * MIB) for at, mib in enumerate(sizes)])
        assert plan_merge(waiting, RULES, due - 1) is None
        assert merge_due_at_ms(waiting, RULES, T0) == due
        assert plan_merge(waiting, RULES, due) == Merge(0, last, FINAL_LEVEL)


def test_only_so_many_large_runs_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_plan, "LARGE_RUNS_MAX", 3)
    waiting = [segment(at, 64 * MIB) for at in range(4)]
    assert plan_merge(topic(waiting[:3]), RULES, T0) is None
    assert plan_merge(topic(waiting), RULES, T0) == Merge(0, 1, FINAL_LEVEL)
    assert merge_due_at_ms(topic(waiting), RULES, T0) == T0


def test_a_rewrite_by_compaction_of_full_size_stays_until_the_next_one() -> None:
    """The next compaction writes it again; so do not merge it with each small run that follows."""
    segments = [segment(0, 128 * MIB), segment(1, MIB), segment(2, MIB)]
    late = T0 + RULES.segment_ms
    assert plan_merge(topic(segments), replace(RULES, compacts=True), late) == Merge(1, 2, FINAL_LEVEL)


def test_a_few_small_runs_wait_until_the_first_is_as_old_as_segment_ms() -> None:
    two = topic([segment(0, MIB, ms=T0), segment(1, MIB, ms=T0 + HOUR_MS)])
    due = T0 + RULES.segment_ms
    assert merge_due_at_ms(two, RULES, T0 + HOUR_MS) == due
    assert plan_merge(two, RULES, due - 1) is None
    assert plan_merge(two, RULES, due) == Merge(0, 1, FINAL_LEVEL)
    assert merge_due_at_ms(two, RULES, due + 5) == due + 5


def test_where_no_time_of_archiving_is_known_the_records_say_how_old_they_are() -> None:
    two = topic([structs.replace(one, archived_at_ms=0) for one in small(2)])
    assert merge_due_at_ms(two, RULES, T0) == T0 + RULES.segment_ms


def test_level_0_is_gathered_by_fan_ins() -> None:
    assert plan_merge(topic(small(FAN_IN_MIN - 1, MIB)), RULES, T0) is None
    assert plan_merge(topic(small(FAN_IN_MIN, MIB)), RULES, T0) == Merge(0, FAN_IN_MIN - 1, 1)


def test_level_0_with_a_fourth_of_a_final_segment_waits_for_the_rest() -> None:
    assert plan_merge(topic(small(60, 2 * MIB)), RULES, T0) is None
    assert plan_merge(topic(small(64, 2 * MIB)), RULES, T0) == Merge(0, 63, FINAL_LEVEL)


def test_a_final_run_takes_as_many_as_it_needs() -> None:
    levels = [segment(0, 60 * MIB, level=1), segment(1, 50 * MIB, level=1), segment(2, 30 * MIB), segment(3, 9 * MIB)]
    assert plan_merge(topic(levels), RULES, T0) == Merge(0, 2, FINAL_LEVEL)


@pytest.mark.parametrize("stored", [0, 1, 3])
def test_how_well_final_segments_are_compressed_is_reckoned_with(stored: int) -> None:
    final = segment(0, 128 * MIB, level=2)
    final = structs.replace(
        final, spans=(structs.replace(final.spans[0], raw_bytes=12_800 * MIB),)
    )  # a hundredth; others an eighth
    levels = [final, segment(1, 64 * MIB, level=1), segment(2, 64 * MIB, level=1)]
    assert plan_merge(topic(levels, stored=stored), RULES, T0) is None


def test_too_many_of_level_1_become_a_final_one() -> None:
    runs = [segment(at, 100, level=1) for at in range(FAN_IN_MAX)]
    assert plan_merge(topic(runs[1:]), RULES, T0) is None
    assert plan_merge(topic(runs), RULES, T0) == Merge(0, FAN_IN_MAX - 1, FINAL_LEVEL)


@pytest.mark.parametrize(
    ("size_bytes", "every_ms", "expected"),
    [(50 * KIB, 1, 52), (2 * KIB, 10 * MINUTE_MS, 32), (MIB, 1, FAN_IN_MIN), (10, 1, FAN_IN_MAX), (KIB, 0, 363)],
)
def test_the_fan_in_is_the_root_of_how_many_make_a_final_segment(size_bytes: int, every_ms: int, expected: int) -> None:
    runs = runs_of(SegmentList(added=columns_of(small(5, size_bytes, every_ms))))
    assert merge_plan.fan_in(runs, RULES) == expected


def test_nothing_is_merged_across_the_clean_end_or_across_a_final_run() -> None:
    late = T0 + 10 * RULES.segment_ms
    three = small(3)
    assert plan_merge(topic(three, clean_end=20), RULES, late) == Merge(0, 1, FINAL_LEVEL)
    assert plan_merge(topic(three, clean_end=10), RULES, late) == Merge(1, 2, FINAL_LEVEL)
    for stored in (0, 3):
        apart = [segment(0, KIB), segment(1, KIB, level=2), segment(2, KIB)]
        assert plan_merge(topic(apart, stored=stored), RULES, late) is None


def test_a_run_is_cleaned_only_if_all_its_spans_are() -> None:
    two = SegmentSpan(0, 0, 9, 10, 9), SegmentSpan(1, 0, 9, 10, 9)
    first, second, third = (structs.replace(one, spans=two) for one in small(3))
    runs = [
        first,
        *(
            structs.replace(one, spans=tuple(structs.replace(s, base_offset=10, last_offset=19) for s in two))
            for one in (second, third)
        ),
    ]
    for stored in (0, 2, 3):
        state = structs.replace(
            topic(runs, stored=stored), partitions={0: ColdState(0, 20, 20), 1: ColdState(0, 20, 10)}
        )
        assert plan_merge(state, RULES, T0 + 10 * RULES.segment_ms) == Merge(1, 2, FINAL_LEVEL)


def test_the_oldest_records_are_merged_first() -> None:
    late = T0 + 10 * RULES.segment_ms
    segments = [segment(0, KIB), segment(1, KIB), segment(2, MIB, level=2), segment(3, KIB), segment(4, KIB)]
    assert plan_merge(topic(segments), RULES, late) == Merge(0, 1, FINAL_LEVEL)


def is_quick(cpu_s_max: float, call: Callable[[], object]) -> None:
    """A collection of Python's garbage may fall into any single call."""
    for attempt in attempts():
        with attempt, quicker_than(cpu_s_max, "CPU time of a plan", time.process_time):
            call()


def test_a_plan_is_quick_in_a_topic_of_a_hundred_thousand_final_segments() -> None:
    final = [segment(at, MIB, level=2) for at in range(100_000)]
    state = topic([*final, segment(100_000, MIB), segment(100_001, MIB)], stored=100_000)
    late = T0 + 10 * RULES.segment_ms
    assert plan_merge(state, RULES, late) == Merge(100_000, 100_001, FINAL_LEVEL)
    is_quick(0.02, lambda: merge_due_at_ms(state, RULES, late))


def test_a_plan_is_quick_while_as_many_large_runs_wait_as_may() -> None:
    state = topic([segment(at, 64 * MIB) for at in range(LARGE_RUNS_MAX)], stored=LARGE_RUNS_MAX)
    assert plan_merge(state, RULES, T0) is None
    is_quick(0.1, lambda: merge_due_at_ms(state, RULES, T0))


# ---- its place in the latest manifest


def test_the_output_takes_the_place_of_its_inputs_in_a_version_that_grew() -> None:
    four = small(4)
    output = structs.replace(four[2], key="new", level=1)
    for stored in range(5):
        change = merged(topic(four, stored=stored), four[1:3], [output])
        assert (change.removed, change.added) == (("s1-0", "s2-0"), (output,))


@pytest.mark.parametrize("left", [[0, 1, 3], [0, 1], [3], []], ids=str)
def test_inputs_that_left_the_manifest_are_a_conflict(left: list[int]) -> None:
    four = small(4)
    for stored in range(len(left) + 1):
        with pytest.raises(Conflict):
            merged(topic([four[at] for at in left], stored=stored), four[1:3], [four[1]])
    with pytest.raises(Conflict):
        merged(None, four[1:3], [four[1]])


def test_a_clean_end_that_moved_between_inputs_is_a_conflict() -> None:
    four = small(4)
    with pytest.raises(Conflict, match="compaction"):
        merged(topic(four, clean_end=20), four[1:3], [four[1]])
    for clean_end in (10, 30, 40):
        assert merged(topic(four, clean_end=clean_end), four[1:3], [four[1]]).added == (four[1],)


# ---- whatever the manifest

_segments = st.lists(
    st.tuples(st.integers(1, 200 * MIB), st.sampled_from([0, 0, 0, 1, 2]), st.integers(0, 10 * DAY_MS)), max_size=80
)


@given(
    parts=_segments,
    clean=st.integers(0, 80),
    later_ms=st.integers(0, 20 * DAY_MS),
    stored=st.integers(0, 80),
    input_bytes=st.sampled_from([1, 64 * MIB, INPUT_BYTES]),
    idle=st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_a_merge_takes_neighbours_of_lower_levels_and_is_due_exactly_when_planned(
    parts: list[tuple[int, int, int]], clean: int, later_ms: int, stored: int, input_bytes: int, idle: bool
) -> None:
    segments = [segment(at, size, level=level, ms=T0 + ms) for at, (size, level, ms) in enumerate(parts)]
    before = topic(segments, clean_end=10 * min(clean, len(segments)), stored=stored)
    now_ms = T0 + later_ms
    merge, due_at_ms = (
        decide(before, RULES, now_ms, input_bytes, idle=idle) for decide in (plan_merge, merge_due_at_ms)
    )
    assert isinstance(merge, Merge) == (due_at_ms is not None and due_at_ms <= now_ms)
    if not isinstance(merge, Merge):
        if due_at_ms is not None:
            assert plan_merge(before, RULES, due_at_ms, input_bytes, idle=idle) is not None
        return
    taken = segments_of_runs(before.segments, merge.first_run, merge.last_run)
    assert taken == segments[merge.first_run : merge.last_run + 1]
    assert len(taken) >= 2 or taken[0].level == 0
    assert max(one.level for one in taken) < merge.level <= FINAL_LEVEL
    assert len({one.run < clean for one in taken}) == 1
    if input_bytes == 64 * MIB:
        assert sum(min(one.raw_bytes, 8 * MIB) for one in taken[:-1]) <= 64 * MIB
