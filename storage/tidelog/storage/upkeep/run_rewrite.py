"""Rewrites runs: neighbouring runs of a topic in a shard become one, in bounded memory. Merging and compaction do it.

    rewriter = Rewriter(store, runtime, limits, executor, spill_folder)
    made = await rewriter.made(place, Rewrite(runs, level, going), flavor, segment_bytes)
    manifest = await rewriter.appended(log, place, made, ChangeKind.MERGE, replacement)

Every run is read front to back, some row groups at a time (`segment_input`), `run_merge` orders the pieces, and
`run_writer` makes segments of them. In memory are a piece of each run as it was decoded, another as it was fetched, and
the row groups that are being written.

The segments are uploaded and replace the inputs in the newest version; the archiver may have added runs meanwhile. A
crash leaves at most orphans. If another worker has replaced an input, the append is a `Conflict`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, closing
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from tidelog.storage.errors import Conflict, Corrupt, NotFound
from tidelog.storage.in_flight import each_of, in_thread
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, TopicChange
from tidelog.storage.manifests.shard_upload import EncodedSegment, ShardUpload
from tidelog.storage.manifests.shard_values import ChangeKind, SegmentSpan, TopicSegment
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.parquet.parquet_flavor import ROW_GROUP_RAW_BYTES, ParquetFlavor
from tidelog.storage.parquet.parquet_format import Footer, RowGroup
from tidelog.storage.parquet.row_decoding import check_groups, decode_rows
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.segment_tail import SegmentTail
from tidelog.storage.segments.topic_segment import SEGMENT_FLAVOR, SegmentPlace, partition_bounds
from tidelog.storage.upkeep.row_set import RowSet
from tidelog.storage.upkeep.rules import UpkeepLimits
from tidelog.storage.upkeep.run_merge import RunMerge, StoredRows
from tidelog.storage.upkeep.run_writer import OWN_ROW_GROUP_BYTES, RunShape, RunWriter
from tidelog.storage.upkeep.segment_input import Reading
from tidelog.storage.upkeep.segment_writer import RunFacts, joined

PIECE_SHARE = 4
"""All decoded pieces of the inputs take at most this fraction (one in 4) of the memory, if row groups are as small as
that; as much is being fetched."""
PIECE_BYTES_MIN = 64 * 1024
INPUT_SHARE = 2
"""Where row groups are larger, a merge takes so few runs that one of each takes at most this fraction (one in 2)."""
OPENED_AT_ONCE = 8
COPIED_BYTES_MIN = OWN_ROW_GROUP_BYTES
"""A row group of one partition with so many raw bytes is copied: one that is encoded may be as small. Each takes 600
bytes of the footer, which a reader of a few records fetches whole."""

Rows = pa.Table | StoredRows
"""Decoded rows, or those of a row group."""

Replacement = Callable[[TopicState, Sequence[TopicSegment]], TopicChange]
"""The change of a topic that puts segments in the place of the inputs. Raises `Conflict` if they no longer fit."""


@dataclass(frozen=True)
class Rewrite:
    """The runs `runs`, neighbours, become one of `level`, without the rows in `going`. `checked`: the bytes of all
    inputs were compared with their sha256 lately, so row groups of which no row stays need not be read."""

    runs: Sequence[Sequence[TopicSegment]]
    level: int
    going: RowSet
    checked: bool = False

    @property
    def inputs(self) -> Sequence[TopicSegment]:
        return [segment for run in self.runs for segment in run]

    def spans(self) -> Sequence[SegmentSpan]:
        """The records that stay, for each partition: how many, and between which offsets."""
        kept = (span for segment in self.inputs for span in self._kept(segment))
        return joined(sorted(kept, key=lambda span: (span.partition, span.base_offset)))

    def _kept(self, segment: TopicSegment) -> Iterable[SegmentSpan]:
        going = self.going.mask(segment, 0, segment.records)
        if not going.any():
            return segment.spans
        counts = np.array([span.records for span in segment.spans])
        kept = (counts - np.add.reduceat(going, np.cumsum(counts) - counts, dtype=np.int64)).tolist()
        return [
            replace(span, records=left, raw_bytes=span.raw_bytes * left // span.records)
            for span, left in zip(segment.spans, kept, strict=True)
            if left
        ]


class Rewriter:
    """`executor` decodes and encodes (None: the event loop's default). `spill_folder` holds unfinished segments, in
    files without names, which vanish with the process."""

    def __init__(
        self, store: ObjectStore, runtime: Runtime, limits: UpkeepLimits, executor: Executor | None, spill_folder: Path
    ) -> None:
        self._store = store
        self._entropy = runtime.entropy
        self.clock = runtime.clock
        self.executor = executor
        self.memory_bytes = limits.memory_bytes
        self.spill_folder = spill_folder
        self._uploads = ShardUpload(store, runtime, limits.grace_s)

    @property
    def input_bytes_max(self) -> int:
        """What the row groups of all inputs may take."""
        return self.memory_bytes // INPUT_SHARE

    def reading(self, inputs: int) -> Reading:
        """How `inputs` segments are read at the same time."""
        piece_bytes = max(PIECE_BYTES_MIN, self.memory_bytes // PIECE_SHARE // inputs)
        return Reading(self._store, self.executor, min(ROW_GROUP_RAW_BYTES, piece_bytes))

    async def made(
        self, place: SegmentPlace, rewrite: Rewrite, flavor: ParquetFlavor, segment_bytes: int
    ) -> Sequence[EncodedSegment]:
        """The segments that replace the inputs; bodies are mapped files. Raises `NotFound`, `Corrupt`,
        `Unavailable`."""
        said = rewrite.spans()
        if not said:
            return ()
        inputs, reading = rewrite.inputs, self.reading(len(rewrite.runs))
        shape = RunShape(sum(span.records for span in said), {s.partition: s.raw_bytes for s in said}, segment_bytes)
        facts = RunFacts(inputs[-1].run, rewrite.level, min(segment.archived_at_ms for segment in inputs))
        async with AsyncExitStack() as stack:
            copies = not flavor.has_index
            writer = stack.enter_context(closing(RunWriter(place, shape, flavor, self.spill_folder)))
            rows = partial(_rows, reading, rewrite, copies=copies)
            await self._write(writer, [await stack.enter_async_context(aclosing(rows(run))) for run in rewrite.runs])
            made = await in_thread(self.executor, writer.finish, self._entropy, facts)
        _check_same_records(inputs, said, [span for each in made for span in each.segment.spans])
        return made

    async def appended(
        self,
        log: ShardLog,
        place: SegmentPlace,
        made: Sequence[EncodedSegment],
        kind: ChangeKind,
        replacement: Replacement,
    ) -> ShardManifest:
        """Upload what was `made`, and append the version with it in the place of its inputs. Raises `Conflict`,
        `Unavailable`."""

        def change(latest: ShardManifest, added: Sequence[TopicSegment]) -> ManifestChange:
            if (topic := latest.topics.get(place.topic_id)) is None:
                raise Conflict("the topic left the shard while its segments were being rewritten")
            return ManifestChange(kind, {place.topic_id: replacement(topic, added)})

        if not made:
            return await log.change([place.topic_id], lambda latest: change(latest, ()))
        return await self._uploads.append(log, made, change)

    async def _write(self, writer: RunWriter, inputs: Sequence[AsyncGenerator[Rows]]) -> None:
        merge = RunMerge(len(inputs))
        first: dict[int, Rows | None] = {}

        async def open_input(run: int) -> None:
            first[run] = await anext(inputs[run], None)

        await each_of(range(len(inputs)), open_input, at_once=min(OPENED_AT_ONCE, len(inputs)))
        while (run := merge.wanted) is not None:
            records = first.pop(run) if run in first else await anext(inputs[run], None)
            await in_thread(self.executor, _advance, merge, writer, run, records)


async def _rows(
    reading: Reading, rewrite: Rewrite, run: Sequence[TopicSegment], *, copies: bool
) -> AsyncGenerator[Rows]:
    """The rows of a run that stay, in order."""
    for segment in run:
        rows = _SegmentRows(segment, rewrite.going, copies)
        needed = rows.stay if rewrite.checked else None
        async with aclosing(reading.taken(segment, rows.taken, needed)) as pieces:
            async for _, some in pieces:
                for piece in some:
                    yield piece


@dataclass(frozen=True)
class _SegmentRows:
    """The rows of `segment` that are not in `going`. `copies`: those of large row groups stay as they are stored."""

    segment: TopicSegment
    going: RowSet
    copies: bool

    def stay(self, first: int, end: int) -> bool:
        """Whether any of the rows ``[first, end)`` stay."""
        return self.going.count(self.segment, first, end) < end - first

    def taken(self, tail: SegmentTail, first: int, groups: Sequence[RowGroup], data: memoryview) -> Sequence[Rows]:
        found: list[Rows] = []
        for copied, some in groupby(groups, lambda group: self._is_copied(tail.footer, group)):
            part = list(some)
            stored = data[part[0].start - groups[0].start : part[-1].end - groups[0].start]
            found += self._copied(tail, part, stored) if copied else [self._decoded(tail, first, part, stored)]
            first += sum(group.rows for group in part)
        return found

    def _is_copied(self, footer: Footer, group: RowGroup) -> bool:
        if not self.copies or not footer.has_only_ours or footer.index_crc32 is not None:
            return False
        first, last = partition_bounds(group)
        return first == last and group.raw_bytes >= COPIED_BYTES_MIN and not self._loses

    @cached_property
    def _loses(self) -> bool:
        return self.going.count(self.segment) > 0

    def _copied(self, tail: SegmentTail, groups: Sequence[RowGroup], data: memoryview) -> Iterator[StoredRows]:
        check_groups(tail.key, groups, data)
        for group in groups:
            stored = data[group.start - groups[0].start : group.end - groups[0].start]
            yield StoredRows(tail.source, group, stored)

    def _decoded(self, tail: SegmentTail, first: int, groups: Sequence[RowGroup], data: memoryview) -> pa.Table:
        records = decode_rows(tail.key, SEGMENT_FLAVOR, tail.footer, groups, data)
        if not self._loses:
            return records
        return records.filter(pa.array(~self.going.mask(self.segment, first, first + records.num_rows)))


@asynccontextmanager
async def reading_inputs(log: ShardLog, manifest: ShardManifest, *, planned_now: bool = True) -> AsyncIterator[None]:
    """Turns the `NotFound` of an input that `manifest` names into `Corrupt`, or into `Conflict` if a later version may
    have removed it. `planned_now`: the inputs were taken from `manifest`, not from a version before it."""
    try:
        yield
    except NotFound as error:
        if not planned_now or (await log.latest()).version > manifest.version:
            raise Conflict(f"a segment left the manifest while it was being rewritten: {error}") from error
        raise Corrupt(log.key(manifest.version), f"names a segment that does not exist: {error}") from error


def _advance(merge: RunMerge, writer: RunWriter, run: int, records: Rows | None) -> None:
    merge.feed(run, records)
    for partition, rows, size_bytes in merge.take():
        writer.write(partition, rows, size_bytes)


def _check_same_records(
    inputs: Sequence[TopicSegment], said: Sequence[SegmentSpan], made: Iterable[SegmentSpan]
) -> None:
    """Raises `Corrupt` unless `made` has the records that stay by the manifest: the same number in each partition,
    between the same offsets."""
    found = {span.partition: span for span in joined(made)}
    for span in said:
        one = found.pop(span.partition, None)
        if one is None or one.records != span.records or not _is_within(one, span):
            raise Corrupt(inputs[0].key, f"and its neighbours should keep {span}, and {one} was written")
    if found:
        raise Corrupt(inputs[0].key, f"and its neighbours should not have records of the partitions {sorted(found)}")


def _is_within(one: SegmentSpan, limits: SegmentSpan) -> bool:
    return limits.base_offset <= one.base_offset and one.last_offset <= limits.last_offset
