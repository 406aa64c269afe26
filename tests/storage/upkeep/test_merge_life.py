"""Planning of merges: over years, write amplification stays below 3 and there are few segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from msgspec import structs
from tests.storage.upkeep.merge_plans import (
    INPUT_BYTES,
    KIB,
    MIB,
    MINUTE_MS,
    RULES,
    T0,
    plan_merge,
    segment,
    topic,
)

from tidelog.storage.manifests.shard_values import SegmentSpan, TopicSegment
from tidelog.storage.upkeep.merge_plan import FAN_IN_MAX, FAN_IN_MIN
from tidelog.storage.upkeep.rules import DAY_MS, UpkeepRules
from tidelog.storage.upkeep.topic_runs import FINAL_LEVEL


@dataclass
class Life:
    """A topic whose archiver adds a run of `size_bytes` every `every_ms`; due merges happen immediately. Final segments
    are a fifth smaller than their inputs."""

    size_bytes: int
    every_ms: int
    rules: UpkeepRules = RULES
    input_bytes: int = INPUT_BYTES
    idle: bool = False
    now_ms: int = T0
    segments: list[TopicSegment] = field(default_factory=list)
    archived_bytes: int = 0
    written_bytes: int = 0
    small_max: int = 0
    inputs_max: int = 0

    def run(self, passes: int) -> None:
        first = self.segments[-1].run + 1 if self.segments else 0
        for at in range(first, first + passes):
            self.now_ms += self.every_ms
            self.segments.append(segment(at, self.size_bytes, ms=self.now_ms))
            self.archived_bytes += self.segments[-1].raw_bytes
            self.written_bytes += self.segments[-1].raw_bytes
            self._merge()
            self.small_max = max(self.small_max, sum(s.level < FINAL_LEVEL for s in self.segments))

    def _merge(self) -> None:
        while merge := plan_merge(topic(self.segments), self.rules, self.now_ms, self.input_bytes, idle=self.idle):
            inputs = [s for s in self.segments if merge.first_run <= s.run <= merge.last_run]
            self.inputs_max = max(self.inputs_max, len(inputs))
            output = self._output(inputs, merge.level)
            self.written_bytes += output.raw_bytes
            at = self.segments.index(inputs[0])
            self.segments[at : at + len(inputs)] = [output]

    def _output(self, inputs: Sequence[TopicSegment], level: int) -> TopicSegment:
        spans = [segment.spans[0] for segment in inputs]
        raw_bytes = sum(span.raw_bytes for span in spans)
        records = sum(span.records for span in spans)
        return structs.replace(
            inputs[-1],
            key=f"{inputs[0].key}-{inputs[-1].key}",
            spans=(SegmentSpan(0, spans[0].base_offset, spans[-1].last_offset, records, raw_bytes),),
            size_bytes=raw_bytes // 10 if level == FINAL_LEVEL else raw_bytes // 8,
            level=level,
            archived_at_ms=inputs[0].archived_at_ms,
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
    "2 KiB every five minutes": (2 * KIB, 5 * MINUTE_MS, 4_500, 2 * 45 + 2),
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
    spans = [s.spans[0] for s in life.segments]
    assert [span.base_offset for span in spans[1:]] == [span.next_offset for span in spans[:-1]]
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
    life.run(1_500)
    assert life.amplification <= 3
    assert life.small_max <= 2 * FAN_IN_MAX


def test_with_little_memory_merges_take_few_runs_and_records_are_written_thrice_all_the_same() -> None:
    """Eight inputs of a row group fit: eight times eight passes make a final run."""
    life = Life(MIB, MINUTE_MS, input_bytes=64 * MIB)
    life.run(2_000)
    assert life.inputs_max == 8
    assert life.amplification <= 3
    assert life.small_max <= 18
    finals = [s for s in life.segments if s.level == FINAL_LEVEL]
    assert all(final.raw_bytes >= 8 * 8 * 8 * MIB for final in finals)


def test_a_load_of_large_runs_costs_no_merge_until_it_ends() -> None:
    life = Life(48 * MIB, 10_000)
    life.run(500)
    assert (life.amplification, life.small_max) == (1, 500)
    life.idle = True
    life.run(1)
    assert 1.9 < life.amplification <= 2
    assert all(one.level == FINAL_LEVEL for one in life.segments)
