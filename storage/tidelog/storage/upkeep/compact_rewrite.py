"""The second pass of a compaction: rewrites segments that lose records, the oldest first.

A segment that loses none keeps its object. Neighbours that lose some are gathered into segments of about
``segment.bytes``, as many as one **rewrite** holds. Each rewrite is appended to the manifest separately, so that a
crash loses little work and no upload waits long for its manifest.

The oldest first, because the clean end moves with each rewrite. The log is right after each of them: a superseded
record may be removed as long as a newer one of its key stays. But a tombstone's time must not begin before the records
that it deleted, which lie below it, are removed: records below the clean end have been deduplicated against the whole
pass.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from tidelog.storage.errors import Conflict
from tidelog.storage.manifests.manifest import Manifest, Segment
from tidelog.storage.parquet.parquet_flavor import ParquetFlavor
from tidelog.storage.parquet.parquet_format import Footer
from tidelog.storage.runtime import Entropy
from tidelog.storage.segments.segment_codec import SEGMENT_FLAVOR, EncodedSegment, decode_segment_rows
from tidelog.storage.upkeep.compact_keys import READ_SHARE, CompactMeans
from tidelog.storage.upkeep.compact_plan import CompactPlan
from tidelog.storage.upkeep.in_thread import in_thread
from tidelog.storage.upkeep.row_set import RowSet
from tidelog.storage.upkeep.rules import UpkeepRules
from tidelog.storage.upkeep.segment_input import RowGroups, read_footer, read_stretches, stretches
from tidelog.storage.upkeep.segment_writer import SegmentWriter
from tidelog.storage.upkeep.task import Place


@dataclass(frozen=True)
class Rewrite:
    """`inputs`, neighbours whose first record is row `first_row` of the plan, become segments of `output_records` each.
    After it keys are deduplicated up to `clean_end`."""

    inputs: tuple[Segment, ...]
    first_row: int
    output_records: int
    clean_end: int


@dataclass(frozen=True)
class _Candidate:
    """A segment that loses records, and an estimate of the rest."""

    segment: Segment
    at: int
    first_row: int
    kept: int

    @property
    def kept_bytes(self) -> int:
        """The stored bytes of the kept records, about."""
        return self.segment.size_bytes * self.kept // self.segment.records


def plan_rewrites(plan: CompactPlan, going: RowSet, segment_bytes: int) -> Sequence[Rewrite]:
    """Gathers neighbours while the stored bytes of their kept records are at most about `segment_bytes`. Pure. The
    `clean_end` of the last one is the plan's."""
    gathered: list[list[_Candidate]] = []
    held_bytes = 0
    for candidate in _candidates(plan.segments, going):
        held_bytes += candidate.kept_bytes
        if not gathered or gathered[-1][-1].at + 1 != candidate.at or held_bytes > segment_bytes:
            gathered.append([])
            held_bytes = candidate.kept_bytes
        gathered[-1].append(candidate)
    clean_ends = [*(group[0].segment.base_offset for group in gathered[1:]), plan.clean_end]
    return [_rewrite(group, clean_end, segment_bytes) for group, clean_end in zip(gathered, clean_ends, strict=False)]


def _candidates(segments: Sequence[Segment], going: RowSet) -> Iterator[_Candidate]:
    first_row = 0
    for at, segment in enumerate(segments):
        lost = going.count(first_row, first_row + segment.records)
        if lost:
            yield _Candidate(segment, at, first_row, segment.records - lost)
        first_row += segment.records


def _rewrite(group: Sequence[_Candidate], clean_end: int, segment_bytes: int) -> Rewrite:
    kept = sum(candidate.kept for candidate in group)
    outputs = max(1, -(-sum(candidate.kept_bytes for candidate in group) // segment_bytes))
    inputs = tuple(candidate.segment for candidate in group)
    return Rewrite(inputs, group[0].first_row, max(1, -(-kept // outputs)), clean_end)


def replaced(latest: Manifest, inputs: Sequence[Segment], added: Sequence[Segment]) -> Manifest:
    """`latest` with `added` in the place of `inputs`. Retention may have removed some of those meanwhile; raises
    `Conflict` if anything else has."""
    there = {segment.key for segment in latest.segments}
    if any(segment.key not in there and segment.next_offset > latest.log_start_offset for segment in inputs):
        raise Conflict("another worker replaced segments that were being compacted: start over")
    gone = {segment.key for segment in inputs}
    kept = [segment for segment in latest.segments if segment.key not in gone]
    living = [segment for segment in added if segment.next_offset > latest.log_start_offset]
    return replace(latest, segments=tuple(sorted((*kept, *living), key=lambda segment: segment.base_offset)))


class Rewriter:
    """Makes the segments of rewrites, without the rows of the plan in `going`."""

    def __init__(self, means: CompactMeans, entropy: Entropy, place: Place, rules: UpkeepRules, going: RowSet) -> None:
        self._means = means
        self._entropy = entropy
        self._place = place
        self._flavor = replace(SEGMENT_FLAVOR, bloom_column="key") if rules.key_bloom_filter else SEGMENT_FLAVOR
        self._going = going

    async def outputs(self, rewrite: Rewrite) -> Sequence[EncodedSegment]:
        """The segments that replace its inputs; bodies are mapped files. Raises `NotFound`, `Corrupt`,
        `Unavailable`."""
        made: list[EncodedSegment] = []
        archived_at_ms = min(segment.archived_at_ms for segment in rewrite.inputs)
        with closing(_Outputs(self._place, self._flavor, self._means.spill_folder, rewrite.output_records)) as outputs:
            async with aclosing(self._kept(rewrite)) as tables:
                async for records in tables:
                    made += await in_thread(self._means.executor, outputs.write, records, self._entropy)
            made += await in_thread(self._means.executor, outputs.finish, self._entropy)
        # Level 0, whatever the inputs had: small segments may be merged like new ones.
        return [EncodedSegment(replace(one.segment, archived_at_ms=archived_at_ms), one.body) for one in made]

    async def _kept(self, rewrite: Rewrite) -> AsyncGenerator[pa.Table]:
        """The records that stay, in order; row groups that lose all records are not read."""
        first_row = rewrite.first_row
        for segment in rewrite.inputs:
            footer = await read_footer(self._means.store, segment)
            ends = (first_row + np.cumsum([group.rows for group in footer.row_groups])).tolist()
            begins = [first_row, *ends[:-1]]
            groups = [g for g in footer.row_groups if self._going.count(begins[g.index], ends[g.index]) < g.rows]
            runs = stretches(groups, self._means.memory_bytes // READ_SHARE)
            async with aclosing(read_stretches(self._means.store, segment, runs)) as reading:
                async for run, data in reading:
                    begin = begins[run[0].index]
                    yield await in_thread(self._means.executor, self._filtered, segment, footer, run, data, begin)
            first_row = ends[-1]

    def _filtered(
        self, segment: Segment, footer: Footer, groups: RowGroups, data: memoryview, first_row: int
    ) -> pa.Table:
        records = decode_segment_rows(segment.key, footer, groups, data)
        stays = ~self._going.mask(first_row, first_row + records.num_rows)
        return records.filter(pa.array(stays))


class _Outputs:
    """Writes one segment after the other, of `segment_records` each."""

    def __init__(self, place: Place, flavor: ParquetFlavor, folder: Path, segment_records: int) -> None:
        self._place = place
        self._flavor = flavor
        self._folder = folder
        self._segment_records = segment_records
        self._writer: SegmentWriter | None = None
        self._room = segment_records

    def write(self, records: pa.Table, entropy: Entropy) -> Sequence[EncodedSegment]:
        """Append `records`. Returns the segments that are full now."""
        full: list[EncodedSegment] = []
        while records.num_rows:
            if self._writer is None:
                self._writer = SegmentWriter(self._place.topic, self._place.topic_partition, self._flavor, self._folder)
            self._writer.write(records.slice(0, self._room))
            taken = min(self._room, records.num_rows)
            records, self._room = records.slice(taken), self._room - taken
            if not self._room:
                full += self.finish(entropy)
        return full

    def finish(self, entropy: Entropy) -> Sequence[EncodedSegment]:
        """The segment in progress, if there is one."""
        if self._writer is None:
            return ()
        finished = self._writer.finish(entropy.new_id())
        self.close()
        self._writer, self._room = None, self._segment_records
        return (finished,)

    def close(self) -> None:
        """Drop the segment in progress."""
        if self._writer is not None:
            self._writer.close()
