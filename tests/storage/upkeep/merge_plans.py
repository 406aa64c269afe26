"""Topics to plan merges for, made of segments of which only the sizes and times matter."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.storage.manifests.segment_columns import columns_of
from tidelog.storage.manifests.shard_values import ColdState, SegmentSpan, TopicSegment
from tidelog.storage.manifests.topic_state import TopicBase, TopicState
from tidelog.storage.upkeep import merge_plan
from tidelog.storage.upkeep.merge_plan import Merge
from tidelog.storage.upkeep.rules import DAY_MS, UpkeepRules

KIB, MIB = 1 << 10, 1 << 20
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
T0 = 1_760_000_000_000
RULES = UpkeepRules(segment_bytes=128 * MIB, segment_ms=7 * DAY_MS)
INPUT_BYTES = 1 << 40
"""So much that it bounds nothing."""


def segment(run: int, size_bytes: int, *, level: int = 0, ms: int = T0, records: int = 10) -> TopicSegment:
    """The only segment of `run`; its offsets in partition 0 follow from that, ten per run."""
    span = SegmentSpan(0, 10 * run, 10 * run + records - 1, records, 8 * size_bytes)
    return TopicSegment(f"s{run}-{level}", run, level, size_bytes, "", ms, ms, ms, (span,))


def topic(segments: Sequence[TopicSegment], *, clean_end: int = 0, stored: int = 0) -> TopicState:
    """A topic with `segments`, of which the first `stored` are in its list."""
    base = TopicBase(columns_of(segments[:stored]))
    cold_end = segments[-1].spans[0].next_offset if segments else 0
    states = {0: ColdState(cold_end=cold_end, clean_end=clean_end)}
    next_run = segments[-1].run + 1 if segments else 0
    return TopicState("web", next_run, None, base, added=columns_of(segments[stored:]), partitions=states)


def plan_merge(
    at: TopicState, rules: UpkeepRules, now_ms: int, input_bytes: int = INPUT_BYTES, *, idle: bool = False
) -> Merge | None:
    return merge_plan.plan_merge(at, rules, input_bytes, now_ms, idle=idle)


def merge_due_at_ms(
    at: TopicState, rules: UpkeepRules, now_ms: int, input_bytes: int = INPUT_BYTES, *, idle: bool = False
) -> int | None:
    return merge_plan.merge_due_at_ms(at, rules, input_bytes, now_ms, idle=idle)


def small(count: int, size_bytes: int = 50 * KIB, every_ms: int = MINUTE_MS) -> list[TopicSegment]:
    return [segment(at, size_bytes, ms=T0 + at * every_ms) for at in range(count)]
