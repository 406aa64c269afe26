"""The second pass of a compaction: segments that lose records are written again without them, the oldest first.

A segment that loses none keeps its object. Neighbours that lose some are gathered into segments of about
``segment.bytes``, as many as a **rewrite** holds; each rewrite is appended to the manifest by itself, so that a crash
loses little work and nothing waits long between its upload and its manifest.

The oldest first, because the clean end moves with each of them. Any beginning of the rewrites leaves a right log: a
superseded record may go as long as a newer one of its key stays. But a tombstone's time must not begin before all that
it deleted, which lies below it, is gone: what is below the clean end has been deduplicated against all of the pass.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tidelog.storage.errors import Conflict
from tidelog.storage.manifest import Manifest, Segment
from tidelog.storage.parquet_format import Footer
from tidelog.storage.records import RECORD_SCHEMA
from tidelog.storage.runtime import Entropy
from tidelog.storage.segment_codec import EncodedSegment, decode_segment_rows, encode_segment
from tidelog.storage.upkeep.compact_keys import READ_SHARE, CompactMeans
from tidelog.storage.upkeep.compact_plan import CompactPlan
from tidelog.storage.upkeep.in_thread import in_thread
from tidelog.storage.upkeep.row_set import RowSet
from tidelog.storage.upkeep.segment_input import RowGroups, read_footer, read_stretches, stretches
from tidelog.storage.upkeep.spill_file import mapped_copy
from tidelog.storage.upkeep.task import Place

OUTPUT_SHARE = 4
"""Of the memory, a segment being written takes at most one part in so many; with its encoded body that is half."""
ROW_BYTES = 32
"""About what a record takes in memory beside its key and value."""


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
    """A segment that loses records, and about what is left of it in memory."""

    segment: Segment
    at: int
    first_row: int
    kept: int

    @property
    def kept_bytes(self) -> int:
        """A manifest of before raw bytes were counted tells the compressed size alone."""
        whole = max(self.segment.raw_bytes, self.segment.size_bytes) + ROW_BYTES * self.segment.records
        return whole * self.kept // self.segment.records


def plan_rewrites(plan: CompactPlan, going: RowSet, output_bytes: int) -> Sequence[Rewrite]:
    """Neighbours together while what is left of them is at most `output_bytes` in memory. Pure. The last one's
    `clean_end` is the plan's."""
    gathered: list[list[_Candidate]] = []
    held_bytes = 0
    for candidate in _candidates(plan.segments, going):
        held_bytes += candidate.kept_bytes
        if not gathered or gathered[-1][-1].at + 1 != candidate.at or held_bytes > output_bytes:
            gathered.append([])
            held_bytes = candidate.kept_bytes
        gathered[-1].append(candidate)
    clean_ends = [*(group[0].segment.base_offset for group in gathered[1:]), plan.clean_end]
    return [_rewrite(group, clean_end, output_bytes) for group, clean_end in zip(gathered, clean_ends, strict=False)]


def _candidates(segments: Sequence[Segment], going: RowSet) -> Iterator[_Candidate]:
    first_row = 0
    for at, segment in enumerate(segments):
        lost = going.count(first_row, first_row + segment.records)
        if lost:
            yield _Candidate(segment, at, first_row, segment.records - lost)
        first_row += segment.records


def _rewrite(group: Sequence[_Candidate], clean_end: int, output_bytes: int) -> Rewrite:
    kept = sum(candidate.kept for candidate in group)
    outputs = max(1, -(-sum(candidate.kept_bytes for candidate in group) // output_bytes))
    inputs = tuple(candidate.segment for candidate in group)
    return Rewrite(inputs, group[0].first_row, max(1, -(-kept // outputs)), clean_end)


def replaced(latest: Manifest, inputs: Sequence[Segment], added: Sequence[Segment]) -> Manifest:
    """`latest` with `added` in the place of `inputs`. Retention may have taken some of those away meanwhile; raises
    `Conflict` if anything else has."""
    there = {segment.key for segment in latest.segments}
    if any(segment.key not in there and segment.next_offset > latest.log_start_offset for segment in inputs):
        raise Conflict("another worker replaced segments that were being compacted: start over")
    gone = {segment.key for segment in inputs}
    kept = [segment for segment in latest.segments if segment.key not in gone]
    living = [segment for segment in added if segment.next_offset > latest.log_start_offset]
    return replace(latest, segments=tuple(sorted((*kept, *living), key=lambda segment: segment.base_offset)))


class Rewriter:
    """Makes the segments of rewrites. `going` are rows of the plan."""

    def __init__(self, means: CompactMeans, entropy: Entropy, place: Place, going: RowSet) -> None:
        self._means = means
        self._entropy = entropy
        self._place = place
        self._going = going

    async def outputs(self, rewrite: Rewrite) -> Sequence[EncodedSegment]:
        """What takes the place of its inputs; bodies are mapped files. Raises `NotFound`, `Corrupt`, `Unavailable`."""
        made: list[EncodedSegment] = []
        archived_at_ms = min(segment.archived_at_ms for segment in rewrite.inputs)
        gathered = RECORD_SCHEMA.empty_table()
        async with aclosing(self._kept(rewrite)) as tables:
            async for records in tables:
                gathered = pa.concat_tables([gathered, records])
                while gathered.num_rows >= rewrite.output_records:
                    made.append(await self._encoded(gathered.slice(0, rewrite.output_records), archived_at_ms))
                    gathered = gathered.slice(rewrite.output_records)
        if gathered.num_rows:
            made.append(await self._encoded(gathered, archived_at_ms))
        return made

    async def _kept(self, rewrite: Rewrite) -> AsyncGenerator[pa.Table]:
        """The records that stay, in order; row groups of which nothing stays are not read."""
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

    async def _encoded(self, records: pa.Table, archived_at_ms: int) -> EncodedSegment:
        return await in_thread(self._means.executor, self._encode, records, archived_at_ms, self._entropy.new_id())

    def _encode(self, records: pa.Table, archived_at_ms: int, segment_id: str) -> EncodedSegment:
        """Of level 0, whatever its inputs were: small ones may be merged like new ones."""
        encoded = encode_segment(self._place.topic, self._place.topic_partition, records, segment_id)
        segment = replace(encoded.segment, archived_at_ms=archived_at_ms)
        return EncodedSegment(segment, mapped_copy(memoryview(encoded.body), self._means.spill_folder))
