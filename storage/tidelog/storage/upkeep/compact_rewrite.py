"""The second pass of a compaction: rewrites runs that lose records, the oldest first.

A run that loses none keeps its objects. Neighbours that lose some are merged into one run without those records
(`merge_rows`), as many as have segments of about ``segment.bytes`` together, and as the memory has room for. Each such
**rewrite** is appended to the manifest separately, so that a crash loses little work and no upload waits long for its
manifest.

The oldest first, because the clean ends move with each rewrite. The log is right after each of them: a superseded
record may be removed as long as a newer one of its key stays. But a tombstone's time must not begin before the records
that it deleted, which lie below it, are removed: records below the clean end have been deduplicated against the whole
pass."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tidelog.storage.errors import Conflict, Corrupt
from tidelog.storage.manifests.shard_manifest import TopicChange
from tidelog.storage.manifests.shard_upload import EncodedSegment
from tidelog.storage.manifests.shard_values import TopicSegment
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.runtime import Entropy
from tidelog.storage.segments.topic_segment import SEGMENT_FLAVOR, SegmentPlace
from tidelog.storage.upkeep.compact_plan import CompactPlan, ends_of
from tidelog.storage.upkeep.in_thread import in_thread
from tidelog.storage.upkeep.merge_rows import MergeMeans, shape_of, write_merged
from tidelog.storage.upkeep.row_set import RowSet
from tidelog.storage.upkeep.rules import UpkeepRules
from tidelog.storage.upkeep.segment_input import Reading
from tidelog.storage.upkeep.segment_writer import RunFacts
from tidelog.storage.upkeep.topic_runs import by_run, input_bytes


@dataclass(frozen=True)
class Rewrite:
    """The runs `runs`, neighbours, lose records and become one run of `kept` records. `first_rows`: the row of the plan
    at which each segment begins, by its key. After it, keys are there once below `clean_ends`, by partition."""

    runs: tuple[Sequence[TopicSegment], ...]
    first_rows: Mapping[str, int]
    kept: int
    clean_ends: Mapping[int, int]

    @property
    def inputs(self) -> Sequence[TopicSegment]:
        return [segment for run in self.runs for segment in run]


@dataclass(frozen=True)
class _Candidate:
    """Run number `at` of the plan, which loses records, and how many it keeps."""

    at: int
    run: Sequence[TopicSegment]
    first_rows: Mapping[str, int]
    kept: int

    @property
    def kept_bytes(self) -> int:
        """The stored bytes of the kept records, about."""
        return sum(segment.size_bytes for segment in self.run) * self.kept // self._records

    @property
    def input_bytes(self) -> int:
        """What it takes in memory while it is read."""
        return input_bytes(sum(segment.raw_bytes for segment in self.run), self._records)

    @property
    def _records(self) -> int:
        return sum(segment.records for segment in self.run)


def plan_rewrites(plan: CompactPlan, going: RowSet, segment_bytes: int, input_bytes_max: int) -> Sequence[Rewrite]:
    """Gathers neighbours while the stored bytes of their kept records are at most about `segment_bytes`, and what they
    take in memory is at most `input_bytes_max`. Pure. The clean ends of the last one are the plan's."""
    gathered: list[list[_Candidate]] = []
    held_bytes = held_input_bytes = 0
    for candidate in _candidates(plan.segments, going):
        held_bytes += candidate.kept_bytes
        held_input_bytes += candidate.input_bytes
        has_room = held_bytes <= segment_bytes and held_input_bytes <= input_bytes_max
        if not gathered or gathered[-1][-1].at + 1 != candidate.at or not has_room:
            gathered.append([])
            held_bytes, held_input_bytes = candidate.kept_bytes, candidate.input_bytes
        gathered[-1].append(candidate)
    runs = by_run(plan.segments)
    nexts = [group[0].at for group in gathered[1:]]
    clean_ends = [*(ends_of(each for run in runs[:at] for each in run) for at in nexts), plan.clean_ends]
    return [_rewrite(group, ends) for group, ends in zip(gathered, clean_ends, strict=False)]


def _candidates(segments: Sequence[TopicSegment], going: RowSet) -> Iterator[_Candidate]:
    first_row = 0
    for at, run in enumerate(by_run(segments)):
        first_rows, kept = {}, 0
        for segment in run:
            first_rows[segment.key] = first_row
            kept += segment.records - going.count(first_row, first_row + segment.records)
            first_row += segment.records
        if kept < sum(segment.records for segment in run):
            yield _Candidate(at, run, first_rows, kept)


def _rewrite(group: Sequence[_Candidate], clean_ends: Mapping[int, int]) -> Rewrite:
    first_rows = {key: row for candidate in group for key, row in candidate.first_rows.items()}
    kept = sum(candidate.kept for candidate in group)
    return Rewrite(tuple(candidate.run for candidate in group), first_rows, kept, clean_ends)


def replaced(latest: TopicState, inputs: Sequence[TopicSegment], added: Sequence[TopicSegment]) -> TopicChange:
    """The change that puts `added` in the place of `inputs`. Retention may have removed some of those meanwhile; raises
    `Conflict` if anything else has."""
    there = [segment for segment in inputs if latest.segments.named(segment.key) is not None]
    named = {segment.key for segment in there}
    if any(segment.key not in named and _lives(segment, latest) for segment in inputs):
        raise Conflict("another worker replaced segments that were being compacted: start over")
    living = tuple(segment for segment in added if _lives(segment, latest))
    return TopicChange(latest.name, tuple(segment.key for segment in there), living)


def _lives(segment: TopicSegment, topic: TopicState) -> bool:
    """Whether a record of it is at or above its partition's log start."""
    return any(span.next_offset > topic.partition(span.partition).log_start_offset for span in segment.spans)


@dataclass(frozen=True)
class Rewriter:
    """Makes the segments of rewrites, without the rows of the plan in `going`."""

    means: MergeMeans
    entropy: Entropy
    place: SegmentPlace
    rules: UpkeepRules
    going: RowSet

    async def outputs(self, rewrite: Rewrite) -> Sequence[EncodedSegment]:
        """The segments that replace its inputs; bodies are mapped files. Raises `NotFound`, `Corrupt`,
        `Unavailable`."""
        inputs = rewrite.inputs
        shape = replace(shape_of(inputs, self.rules.segment_bytes), records=rewrite.kept)
        # Level 0, whatever the inputs had: a small run may be merged like a new one.
        facts = RunFacts(inputs[-1].run, 0, min(segment.archived_at_ms for segment in inputs))

        def kept(reading: Reading, segment: TopicSegment) -> AsyncGenerator[pa.Table]:
            return self._kept(reading, segment, rewrite.first_rows[segment.key])

        flavor = replace(SEGMENT_FLAVOR, bloom_column="key") if self.rules.key_bloom_filter else SEGMENT_FLAVOR
        made = await write_merged(
            self.means, self.entropy, self.place, rewrite.runs, shape, lambda: flavor, facts, kept
        )
        written = sum(each.segment.records for each in made)
        if written != rewrite.kept:
            raise Corrupt(inputs[0].key, f"and its neighbours keep {rewrite.kept} records, {written} were written")
        return made

    async def _kept(self, reading: Reading, segment: TopicSegment, first_row: int) -> AsyncGenerator[pa.Table]:
        """The records that stay, in order; row groups that lose all records are not read."""
        end = await reading.end(self.place, segment)
        ends = (first_row + np.cumsum([group.rows for group in end.footer.row_groups])).tolist()
        begins = [first_row, *ends[:-1]]
        groups = [g for g in end.footer.row_groups if self.going.count(begins[g.index], ends[g.index]) < g.rows]
        async with aclosing(reading.some_rows(segment, end, groups)) as tables:
            async for run, records in tables:
                yield await in_thread(self.means.executor, self._filtered, records, begins[run[0].index])

    def _filtered(self, records: pa.Table, first_row: int) -> pa.Table:
        return records.filter(pa.array(~self.going.mask(first_row, first_row + records.num_rows)))
