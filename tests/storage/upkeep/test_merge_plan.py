"""Planning of merges: over years, write amplification stays below 3 and there are few segments."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.storage.record_tables import WEB

from tidelog.storage.errors import Conflict
from tidelog.storage.manifests.manifest import Manifest, Segment
from tidelog.storage.upkeep.merge_plan import (
    FAN_IN_MAX,
    FAN_IN_MIN,
    FINAL_LEVEL,
    Merge,
    fan_in,
    merge_due_at_ms,
    merged,
    plan_merge,
)
from tidelog.storage.upkeep.rules import DAY_MS, UpkeepRules

KIB, MIB = 1 << 10, 1 << 20
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
T0 = 1_760_000_000_000
RULES = UpkeepRules(segment_bytes=128 * MIB, segment_ms=7 * DAY_MS)


def segment(at: int, size_bytes: int, *, level: int = 0, ms: int = T0, records: int = 10) -> Segment:
    """The segment at position `at`; its offsets follow from that, ten per position."""
    base = 10 * at
    return Segment(
        f"s{at}-{level}", base, base + records - 1, records, size_bytes, ms, ms, "", 8 * size_bytes, level, ms
    )


def manifest(segments: Sequence[Segment], **changes: int) -> Manifest:
    return replace(
        Manifest(WEB), segments=tuple(segments), cold_end=segments[-1].next_offset if segments else 0, **changes
    )


def small(count: int, size_bytes: int = 50 * KIB, every_ms: int = MINUTE_MS) -> list[Segment]:
    return [segment(at, size_bytes, ms=T0 + at * every_ms) for at in range(count)]


# ---- a long life


@dataclass
class Life:
    """A partition whose archiver adds a segment of `size_bytes` every `every_ms`; due merges happen immediately. Final
    segments are a fifth smaller than their inputs."""

    size_bytes: int
    every_ms: int
    rules: UpkeepRules = RULES
    now_ms: int = T0
    segments: list[Segment] = field(default_factory=list)
    archived_bytes: int = 0
    written_bytes: int = 0
    small_max: int = 0

    def run(self, passes: int) -> None:
        for at in range(passes):
            self.now_ms += self.every_ms
            self.segments.append(segment(at, self.size_bytes, ms=self.now_ms))
            self.archived_bytes += self.segments[-1].raw_bytes
            self.written_bytes += self.segments[-1].raw_bytes
            self._merge()
            self.small_max = max(self.small_max, sum(s.level < FINAL_LEVEL for s in self.segments))

    def _merge(self) -> None:
        while merge := plan_merge(manifest(self.segments), self.rules, self.now_ms):
            output = self._output(merge)
            self.written_bytes += output.raw_bytes
            self.segments = list(merged(manifest(self.segments), merge.segments, output))

    def _output(self, merge: Merge) -> Segment:
        inputs = merge.segments
        raw_bytes = sum(s.raw_bytes for s in inputs)
        return replace(
            inputs[0],
            key=f"{inputs[0].key}-{inputs[-1].key}",
            last_offset=inputs[-1].last_offset,
            records=sum(s.records for s in inputs),
            size_bytes=raw_bytes // 10 if merge.level == FINAL_LEVEL else raw_bytes // 8,
            raw_bytes=raw_bytes,
            level=merge.level,
        )

    @property
    def amplification(self) -> float:
        return self.written_bytes / self.archived_bytes


LIVES = {
    "16 MiB a pass, a busy partition": (16 * MIB, 10_000, 4_000, 10),
    "2 MiB a pass": (2 * MIB, MINUTE_MS, 10_000, 64 + FAN_IN_MIN),
    "300 KiB a pass": (300 * KIB, MINUTE_MS, 5_000, 2 * 24 + 2),
    "50 KiB a pass": (50 * KIB, 10 * MINUTE_MS, 5_000, 2 * 32 + 2),
    "2 KiB every ten minutes for ten weeks": (2 * KIB, 10 * MINUTE_MS, 10_080, 2 * 32 + 2),
    "2 KiB a minute": (2 * KIB, MINUTE_MS, 11_000, 2 * 101 + 2),
    "2 KiB a day for ten years": (2 * KIB, DAY_MS, 3_650, 8),
}


@pytest.mark.parametrize(("size_bytes", "every_ms", "passes", "small_max"), LIVES.values(), ids=LIVES)
def test_over_a_long_life_records_are_written_thrice_at_most_and_small_segments_are_few(
    size_bytes: int, every_ms: int, passes: int, small_max: int
) -> None:
    life = Life(size_bytes, every_ms)
    life.run(passes)
    assert life.amplification <= 3
    assert life.small_max <= small_max
    assert [s.base_offset for s in life.segments[1:]] == [s.next_offset for s in life.segments[:-1]]
    finals = [s for s in life.segments if s.level == FINAL_LEVEL]
    for final in finals[1:]:  # before the first final segment, its size is not known
        within_ms = final.records // 10 * every_ms
        assert RULES.segment_bytes <= final.size_bytes <= 1.3 * RULES.segment_bytes or within_ms >= RULES.segment_ms


def test_a_busy_partition_writes_its_records_twice_in_all() -> None:
    life = Life(16 * MIB, 10_000)
    life.run(2_000)
    assert life.amplification <= 2


def test_a_rate_that_changes_leaves_few_small_segments_all_the_same() -> None:
    life = Life(2 * KIB, DAY_MS)
    life.run(30)
    life.every_ms, life.size_bytes = 5_000, 1 * KIB
    life.run(3_000)
    assert life.amplification <= 3
    assert life.small_max <= 2 * FAN_IN_MAX


# ---- when, and which


def test_nothing_is_due_for_a_single_segment_or_final_ones() -> None:
    for segments in ([], small(1), [segment(0, MIB, level=2), segment(1, MIB, level=2)], [segment(0, 200 * MIB)]):
        assert merge_due_at_ms(manifest(segments), RULES, T0 + 10**15) is None
        assert plan_merge(manifest(segments), RULES, T0 + 10**15) is None


def test_a_few_small_segments_wait_until_the_first_is_as_old_as_segment_ms() -> None:
    two = manifest([segment(0, MIB, ms=T0), segment(1, MIB, ms=T0 + HOUR_MS)])
    due = T0 + RULES.segment_ms
    assert merge_due_at_ms(two, RULES, T0 + HOUR_MS) == due
    assert plan_merge(two, RULES, due - 1) is None
    assert plan_merge(two, RULES, due) == Merge(two.segments, FINAL_LEVEL)
    assert merge_due_at_ms(two, RULES, due + 5) == due + 5


def test_where_no_time_of_archiving_is_known_the_records_say_how_old_they_are() -> None:
    two = manifest([replace(one, archived_at_ms=0) for one in small(2)])
    assert merge_due_at_ms(two, RULES, T0) == T0 + RULES.segment_ms


def test_level_0_is_gathered_by_fan_ins() -> None:
    one_less = small(FAN_IN_MIN - 1, MIB)
    assert plan_merge(manifest(one_less), RULES, T0) is None
    gathered = plan_merge(manifest(small(FAN_IN_MIN, MIB)), RULES, T0)
    assert gathered == Merge(tuple(small(FAN_IN_MIN, MIB)), 1)


def test_level_0_with_a_fourth_of_a_final_segment_waits_for_the_rest() -> None:
    assert plan_merge(manifest(small(60, 2 * MIB)), RULES, T0) is None
    assert plan_merge(manifest(small(64, 2 * MIB)), RULES, T0) == Merge(tuple(small(64, 2 * MIB)), FINAL_LEVEL)


def test_a_final_segment_takes_as_many_as_it_needs() -> None:
    levels = [segment(0, 60 * MIB, level=1), segment(1, 50 * MIB, level=1), segment(2, 30 * MIB), segment(3, 9 * MIB)]
    assert plan_merge(manifest(levels), RULES, T0) == Merge(tuple(levels[:3]), FINAL_LEVEL)


def test_how_well_final_segments_are_compressed_is_reckoned_with() -> None:
    final = replace(segment(0, 128 * MIB, level=2), raw_bytes=12_800 * MIB)  # a hundredth; the small ones an eighth
    levels = [final, segment(1, 64 * MIB, level=1), segment(2, 64 * MIB, level=1)]
    assert plan_merge(manifest(levels), RULES, T0) is None


def test_too_many_of_level_1_become_a_final_one() -> None:
    run = [segment(at, 100, level=1) for at in range(FAN_IN_MAX)]
    assert plan_merge(manifest(run[1:]), RULES, T0) is None
    assert plan_merge(manifest(run), RULES, T0) == Merge(tuple(run), FINAL_LEVEL)


@pytest.mark.parametrize(
    ("size_bytes", "every_ms", "expected"),
    [(50 * KIB, 1, 52), (2 * KIB, 10 * MINUTE_MS, 32), (MIB, 1, FAN_IN_MIN), (10, 1, FAN_IN_MAX), (KIB, 0, 363)],
)
def test_the_fan_in_is_the_root_of_how_many_make_a_final_segment(size_bytes: int, every_ms: int, expected: int) -> None:
    assert fan_in(small(5, size_bytes, every_ms), RULES) == expected


def test_nothing_is_merged_across_the_clean_end_or_across_a_final_segment() -> None:
    late = T0 + 10 * RULES.segment_ms
    three = small(3)
    assert plan_merge(manifest(three, clean_end=20), RULES, late) == Merge(tuple(three[:2]), FINAL_LEVEL)
    assert plan_merge(manifest(three, clean_end=10), RULES, late) == Merge(tuple(three[1:]), FINAL_LEVEL)
    across = [segment(0, KIB), segment(1, KIB), segment(2, KIB)]
    assert plan_merge(manifest(across, clean_end=15), RULES, late) is None
    apart = [segment(0, KIB), segment(1, KIB, level=2), segment(2, KIB)]
    assert plan_merge(manifest(apart), RULES, late) is None


def test_the_oldest_records_are_merged_first() -> None:
    late = T0 + 10 * RULES.segment_ms
    segments = [segment(0, KIB), segment(1, KIB), segment(2, MIB, level=2), segment(3, KIB), segment(4, KIB)]
    assert plan_merge(manifest(segments), RULES, late) == Merge(tuple(segments[:2]), FINAL_LEVEL)


# ---- its place in the latest manifest


def test_the_output_takes_the_place_of_its_inputs_in_a_version_that_grew() -> None:
    four = small(4)
    output = replace(four[1], key="new", last_offset=four[2].last_offset, level=1)
    assert merged(manifest(four), four[1:3], output) == (four[0], output, four[3])


@pytest.mark.parametrize("left", [[0, 1, 3], [0, 1], [3], [0, 2, 1, 3]], ids=str)
def test_inputs_that_left_the_manifest_are_a_conflict(left: list[int]) -> None:
    four = small(4)
    with pytest.raises(Conflict):
        merged(manifest([four[at] for at in left]), four[1:3], four[1])


def test_a_clean_end_that_moved_between_inputs_is_a_conflict() -> None:
    four = small(4)
    with pytest.raises(Conflict, match="compaction"):
        merged(manifest(four, clean_end=20), four[1:3], four[1])
    for clean_end in (10, 30):
        assert len(merged(manifest(four, clean_end=clean_end), four[1:3], four[1])) == 3


# ---- whatever the manifest

_segments = st.lists(
    st.tuples(st.integers(1, 200 * MIB), st.sampled_from([0, 0, 0, 1, 2]), st.integers(0, 10 * DAY_MS)), max_size=80
)


@given(parts=_segments, clean=st.integers(0, 80), later_ms=st.integers(0, 20 * DAY_MS))
@settings(max_examples=300, deadline=None)
def test_a_merge_takes_neighbours_of_lower_levels_and_is_due_exactly_when_planned(
    parts: list[tuple[int, int, int]], clean: int, later_ms: int
) -> None:
    segments = [segment(at, size, level=level, ms=T0 + ms) for at, (size, level, ms) in enumerate(parts)]
    before = manifest(segments, clean_end=10 * min(clean, len(segments)))
    now_ms = T0 + later_ms
    merge, due_at_ms = plan_merge(before, RULES, now_ms), merge_due_at_ms(before, RULES, now_ms)
    assert (merge is not None) == (due_at_ms is not None and due_at_ms <= now_ms)
    if merge is None:
        if due_at_ms is not None:
            assert plan_merge(before, RULES, due_at_ms) is not None
        return
    places = [segments.index(one) for one in merge.segments]
    assert places == list(range(places[0], places[0] + len(places)))
    assert len(places) >= 2
    assert max(one.level for one in merge.segments) < merge.level <= FINAL_LEVEL
    sides = {one.next_offset <= before.clean_end for one in merge.segments}
    assert len(sides) == 1
    assert all(one.next_offset == other.base_offset for one, other in itertools.pairwise(merge.segments))
