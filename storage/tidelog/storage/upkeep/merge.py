"""Merging: neighbouring small runs of a topic in a shard become one with the same records, in larger segments.

    task = MergeTask(rewriter, load=broker_load)
    due_at_ms = task.due_at_ms(topic, rules, now_ms)
    manifest = await task.run(place, log, rules)          # one merge, one version

`merge_plan` decides what is merged, and when; `run_rewrite` does it. Records below their partition's log start are left
out if a whole span of them lies there: their log start moved at once, and now their bytes go.

Final segments have row groups of one size. An `IDLE` process compresses them by zstd 10 (16 CPU s/GB), a `QUIET` one by
zstd 8 (11 s/GB). While the load is `BUSY`, and at level 1, row groups that are large enough are copied as they are
stored, which takes 0.7 s/GB, and the others are compressed quickly. Large runs wait for an `IDLE` load, so few segments
stay as they were copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ShardManifest, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind, TopicSegment
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.parquet.parquet_flavor import ParquetFlavor
from tidelog.storage.segments.topic_segment import (
    FINAL_SEGMENT_FLAVOR,
    IDLE_SEGMENT_FLAVOR,
    SEGMENT_FLAVOR,
    SegmentPlace,
)
from tidelog.storage.upkeep.merge_plan import merge_due_at_ms, merged, plan_merge
from tidelog.storage.upkeep.row_set import RowSet
from tidelog.storage.upkeep.rules import Load, UpkeepRules, always_idle
from tidelog.storage.upkeep.run_rewrite import Rewrite, Rewriter, reading_inputs
from tidelog.storage.upkeep.task import TopicInShard
from tidelog.storage.upkeep.topic_runs import FINAL_LEVEL, by_run, segments_of_runs

_FINAL_FLAVORS = {Load.BUSY: SEGMENT_FLAVOR, Load.QUIET: FINAL_SEGMENT_FLAVOR, Load.IDLE: IDLE_SEGMENT_FLAVOR}


class MergeTask:
    """The `UpkeepTask` of merging. `load`: what else this process does now."""

    def __init__(self, rewriter: Rewriter, *, load: Callable[[], Load] = always_idle) -> None:
        self._rewriter = rewriter
        self._clock = rewriter.clock
        self._load = load

    def due_at_ms(self, topic: TopicInShard, rules: UpkeepRules, now_ms: int) -> int | None:
        return merge_due_at_ms(topic.state, rules, self._rewriter.input_bytes_max, now_ms, idle=self._is_idle)

    async def run(self, place: SegmentPlace, log: ShardLog, rules: UpkeepRules) -> ShardManifest | None:
        """One merge. It also raises `Unavailable` if the spill folder is full."""
        manifest = await log.with_lists(await log.newest(), [place.topic_id])
        topic, now_ms = manifest.topics.get(place.topic_id), self._clock.now_ms()
        room = self._rewriter.input_bytes_max
        merge = plan_merge(topic, rules, room, now_ms, idle=self._is_idle) if topic else None
        if topic is None or merge is None:
            return None
        inputs = segments_of_runs(topic.segments, merge.first_run, merge.last_run)
        rewrite = Rewrite(by_run(inputs), merge.level, dead_rows(topic, inputs))
        async with reading_inputs(log, manifest):
            made = await self._rewriter.made(place, rewrite, self._flavor(merge.level, rules), rules.segment_bytes)

        def replacement(latest: TopicState, added: Sequence[TopicSegment]) -> TopicChange:
            return merged(latest, inputs, added)

        return await self._rewriter.appended(log, place, made, ChangeKind.MERGE, replacement)

    @property
    def _is_idle(self) -> bool:
        return self._load() is Load.IDLE

    def _flavor(self, level: int, rules: UpkeepRules) -> ParquetFlavor:
        flavor = _FINAL_FLAVORS[self._load()] if level == FINAL_LEVEL else SEGMENT_FLAVOR
        return replace(flavor, bloom_column="key") if rules.key_bloom_filter else flavor


def dead_rows(topic: TopicState, segments: Sequence[TopicSegment]) -> RowSet:
    """The rows of spans that lie below the log start of their partition."""
    rows = RowSet(segments)
    starts = {number: state.log_start_offset for number, state in topic.all_partitions.items()}
    for segment in segments if any(starts.values()) else ():
        row = rows.first_row(segment)
        for span in segment.spans:
            if span.next_offset <= starts.get(span.partition, 0):
                rows.add(np.arange(row, row + span.records))
            row += span.records
    return rows
