"""Merging: neighbouring small runs of a topic in a shard become one with the same records, in larger segments.

    task = MergeTask(store, runtime, limits, executor, spill_folder, load=broker_load)
    due_at_ms = task.due_at_ms(topic, rules, now_ms)
    manifest = await task.run(place, log, rules)          # one merge, one version

`merge_plan` decides what is merged, and when. `merge_rows` reads the inputs and writes the output in bounded memory.
The output is uploaded and replaces its inputs in the newest manifest; the archiver may have added runs meanwhile. A
crash leaves at most orphans.

Records below their partition's log start are left out if a whole span of them lies there: their log start moved at
once, and now their bytes go.

Row groups are decoded and encoded again, not copied. A copy would keep the small row groups of the first segments,
which readers would have to fetch one by one, and their quick compression, although the result stays for years. Final
segments are compressed as well as pays, or quickly while the load is `BUSY`. Large runs wait for an `IDLE` load."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from tidelog.storage.errors import Conflict, Corrupt, NotFound
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest
from tidelog.storage.manifests.shard_upload import EncodedSegment, ShardUpload
from tidelog.storage.manifests.shard_values import ChangeKind, SegmentSpan, TopicSegment
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.parquet.parquet_flavor import ParquetFlavor
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.topic_segment import FINAL_SEGMENT_FLAVOR, SEGMENT_FLAVOR, SegmentPlace
from tidelog.storage.upkeep.in_thread import in_thread
from tidelog.storage.upkeep.merge_plan import Merge, merge_due_at_ms, merged, plan_merge
from tidelog.storage.upkeep.merge_rows import MergeMeans, shape_of, write_merged
from tidelog.storage.upkeep.rules import Load, UpkeepLimits, UpkeepRules, always_idle
from tidelog.storage.upkeep.segment_input import Reading
from tidelog.storage.upkeep.segment_writer import RunFacts, joined
from tidelog.storage.upkeep.task import TopicInShard
from tidelog.storage.upkeep.topic_runs import FINAL_LEVEL, by_run, segments_of_runs


class MergeTask:
    """The `UpkeepTask` of merging. `executor` decodes and encodes (None: the event loop's default). `spill_folder`
    holds unfinished segments, in files without names, which vanish with the process. `load`: what else this process
    does now."""

    def __init__(
        self,
        store: ObjectStore,
        runtime: Runtime,
        limits: UpkeepLimits,
        executor: Executor | None,
        spill_folder: Path,
        *,
        load: Callable[[], Load] = always_idle,
    ) -> None:
        self._means = MergeMeans(store, executor, limits.memory_bytes, spill_folder)
        self._runtime = runtime
        self._load = load
        self._uploads = ShardUpload(store, runtime, limits.grace_s)

    def due_at_ms(self, topic: TopicInShard, rules: UpkeepRules, now_ms: int) -> int | None:
        return merge_due_at_ms(topic.state, rules, self._means.input_bytes_max, now_ms, idle=self._is_idle)

    async def run(self, place: SegmentPlace, log: ShardLog, rules: UpkeepRules) -> ShardManifest | None:
        """One merge. It also raises `Unavailable` if the spill folder is full."""
        manifest = await log.with_lists(await log.newest(), [place.topic_id])
        topic = manifest.topics.get(place.topic_id)
        now_ms = self._runtime.clock.now_ms()
        input_bytes_max = self._means.input_bytes_max
        merge = plan_merge(topic, rules, input_bytes_max, now_ms, idle=self._is_idle) if topic else None
        if topic is None or merge is None:
            return None
        inputs = segments_of_runs(topic.segments, merge.first_run, merge.last_run)
        try:
            encoded = await self._encoded(place, merge, inputs, _dead_partitions(topic, inputs), rules)
        except NotFound as error:
            if (await log.latest()).version > manifest.version:
                raise Conflict(f"a segment left the manifest while it was being merged: {error}") from error
            raise Corrupt(log.key(manifest.version), f"names a segment that does not exist: {error}") from error

        def successor(latest: ShardManifest, added: Sequence[TopicSegment]) -> ManifestChange:
            change = merged(latest.topics.get(place.topic_id), inputs, added)
            return ManifestChange(ChangeKind.MERGE, {place.topic_id: change})

        if not encoded:
            return await log.change([place.topic_id], lambda latest: successor(latest, ()))
        return await self._uploads.append(log, encoded, successor)

    async def _encoded(
        self,
        place: SegmentPlace,
        merge: Merge,
        inputs: Sequence[TopicSegment],
        dead: Mapping[str, frozenset[int]],
        rules: UpkeepRules,
    ) -> Sequence[EncodedSegment]:
        living = [part for segment in inputs if (part := _without_spans(segment, dead[segment.key])).spans]
        if not living:
            return ()
        kept = {part.key for part in living}
        runs = by_run(segment for segment in inputs if segment.key in kept)
        facts = RunFacts(merge.last_run, merge.level, min(segment.archived_at_ms for segment in inputs))
        shape, flavor = shape_of(living, rules.segment_bytes), partial(self._flavor, merge.level, rules)

        async def rows(reading: Reading, segment: TopicSegment) -> AsyncGenerator[pa.Table]:
            async with aclosing(reading.rows(place, segment)) as tables:
                async for records in tables:
                    yield await self._without(records, dead[segment.key])

        encoded = await write_merged(self._means, self._runtime.entropy, place, runs, shape, flavor, facts, rows)
        _check_same_records(living, [each.segment for each in encoded])
        return encoded

    @property
    def _is_idle(self) -> bool:
        return self._load() is Load.IDLE

    async def _without(self, records: pa.Table, dead: frozenset[int]) -> pa.Table:
        if not dead:
            return records
        return await in_thread(self._means.executor, _without_partitions, records, dead)

    def _flavor(self, level: int, rules: UpkeepRules) -> ParquetFlavor:
        """Asked when a segment begins."""
        flavor = FINAL_SEGMENT_FLAVOR if level == FINAL_LEVEL else SEGMENT_FLAVOR
        if self._load() is Load.BUSY:
            flavor = replace(flavor, zstd_levels=SEGMENT_FLAVOR.zstd_levels)
        return replace(flavor, bloom_column="key") if rules.key_bloom_filter else flavor


def _dead_partitions(topic: TopicState, segments: Sequence[TopicSegment]) -> dict[str, frozenset[int]]:
    """For each segment, by its key: the partitions whose span lies below their log start."""
    starts = {number: state.log_start_offset for number, state in topic.all_partitions.items()}
    return {
        segment.key: frozenset(
            span.partition for span in segment.spans if span.next_offset <= starts.get(span.partition, 0)
        )
        for segment in segments
    }


def _without_spans(segment: TopicSegment, partitions: frozenset[int]) -> TopicSegment:
    return replace(segment, spans=tuple(span for span in segment.spans if span.partition not in partitions))


def _without_partitions(records: pa.Table, partitions: frozenset[int]) -> pa.Table:
    return records.filter(pa.array(~np.isin(records["partition"].to_numpy(), list(partitions))))


def _check_same_records(inputs: Sequence[TopicSegment], outputs: Sequence[TopicSegment]) -> None:
    """Raises `Corrupt` unless `outputs` have the records that the manifest states for all inputs together."""
    said, made = _stated(inputs), _stated(outputs)
    if said != made:
        different = sorted(set(said) ^ set(made))[0]
        raise Corrupt(inputs[0].key, f"and its neighbours have other records than their manifest says: {different}")


def _stated(segments: Sequence[TopicSegment]) -> Sequence[tuple[int, int, int, int]]:
    """For each partition: first and last offset, and how many records."""

    def place(span: SegmentSpan) -> tuple[int, int]:
        return span.partition, span.base_offset

    spans = joined(sorted((span for segment in segments for span in segment.spans), key=place))
    return [(span.partition, span.base_offset, span.last_offset, span.records) for span in spans]
