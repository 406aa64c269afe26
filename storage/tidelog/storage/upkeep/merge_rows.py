"""Merges the rows of runs in bounded memory. Merging and compaction by key write with it.

Every run is read front to back, some row groups at a time (`segment_input`), `run_merge` orders the pieces, and
`run_writer` makes segments of them. In memory are a piece of each run as it was decoded, another as it was fetched, and
the row groups that are being written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Executor
from contextlib import AsyncExitStack, aclosing, closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tidelog.storage.in_flight import each_of
from tidelog.storage.manifests.shard_upload import EncodedSegment
from tidelog.storage.manifests.shard_values import TopicSegment
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.parquet.parquet_flavor import ROW_GROUP_RAW_BYTES, ParquetFlavor
from tidelog.storage.runtime import Entropy
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.upkeep.in_thread import in_thread
from tidelog.storage.upkeep.run_merge import RunMerge
from tidelog.storage.upkeep.run_writer import RunShape, RunWriter
from tidelog.storage.upkeep.segment_input import Reading
from tidelog.storage.upkeep.segment_writer import RunFacts

PIECE_SHARE = 4
"""All decoded pieces of the inputs take at most this fraction (one in 4) of the memory, if row groups are as small as
that; as much is being fetched."""
PIECE_BYTES_MIN = 64 * 1024
INPUT_SHARE = 2
"""Where row groups are larger, a merge takes so few runs that one of each takes at most this fraction (one in 2)."""
OPENED_AT_ONCE = 8


@dataclass(frozen=True)
class MergeMeans:
    """The resources of a merge."""

    store: ObjectStore
    executor: Executor | None
    memory_bytes: int
    spill_folder: Path

    @property
    def input_bytes_max(self) -> int:
        """What the row groups of all inputs may take."""
        return self.memory_bytes // INPUT_SHARE

    def reading(self, inputs: int) -> Reading:
        """How `inputs` segments are read at the same time."""
        piece_bytes = max(PIECE_BYTES_MIN, self.memory_bytes // PIECE_SHARE // inputs)
        return Reading(self.store, self.executor, min(ROW_GROUP_RAW_BYTES, piece_bytes))


Rows = Callable[[Reading, TopicSegment], AsyncGenerator[pa.Table]]
"""The rows of a segment that the merge takes, in order."""


def shape_of(inputs: Sequence[TopicSegment], segment_bytes: int) -> RunShape:
    """What a run with all records of `inputs` is like."""
    raw_bytes: defaultdict[int, int] = defaultdict(int)
    for segment in inputs:
        for span in segment.spans:
            raw_bytes[span.partition] += span.raw_bytes
    return RunShape(sum(segment.records for segment in inputs), raw_bytes, segment_bytes)


async def write_merged(
    means: MergeMeans,
    entropy: Entropy,
    place: SegmentPlace,
    runs: Sequence[Sequence[TopicSegment]],
    shape: RunShape,
    flavor: Callable[[], ParquetFlavor],
    facts: RunFacts,
    rows: Rows,
) -> Sequence[EncodedSegment]:
    """The segments of a run with the records that `rows` yields of each segment of `runs`. Raises `NotFound`,
    `Corrupt`, `Unavailable`."""
    reading = means.reading(len(runs))
    async with AsyncExitStack() as stack:
        writer = stack.enter_context(closing(RunWriter(place, shape, flavor, means.spill_folder)))
        inputs = [await stack.enter_async_context(aclosing(_run_rows(reading, run, rows))) for run in runs]
        merge = RunMerge(len(runs))
        first: dict[int, pa.Table | None] = {}

        async def open_input(run: int) -> None:
            first[run] = await anext(inputs[run], None)

        await each_of(range(len(runs)), open_input, at_once=min(OPENED_AT_ONCE, len(runs)))
        while (run := merge.wanted) is not None:
            records = first.pop(run) if run in first else await anext(inputs[run], None)
            await in_thread(means.executor, _advance, merge, writer, run, records)
        return await in_thread(means.executor, writer.finish, entropy, facts)


async def _run_rows(reading: Reading, run: Sequence[TopicSegment], rows: Rows) -> AsyncGenerator[pa.Table]:
    for segment in run:
        async with aclosing(rows(reading, segment)) as tables:
            async for records in tables:
                yield records


def _advance(merge: RunMerge, writer: RunWriter, run: int, records: pa.Table | None) -> None:
    merge.feed(run, records)
    for partition, rows, size_bytes in merge.take():
        writer.write(partition, rows, size_bytes)
