"""Splits a rewrite into parts that many processes make side by side, each about one segment of the result.

    parts = split(inputs, going, part_bytes)                       # pure, by one planner
    segments = await made_part(store, runtime, place, part, ...)   # by any process: makes and uploads them
    run = as_one_run(inputs, segments)                             # by the planner, all parts in order

The rows of the result are sorted by (partition, offset). A part is a stretch of them that begins and ends where a span
of an input does. So each row group is read by the parts that keep a row of it, and by no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from tidelog.storage.manifests.shard_values import TopicSegment
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.parquet.parquet_flavor import ParquetFlavor
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.upkeep.row_set import RowSet
from tidelog.storage.upkeep.rules import UpkeepLimits
from tidelog.storage.upkeep.run_rewrite import Rewrite, Rewriter
from tidelog.storage.upkeep.topic_runs import by_run


@dataclass(frozen=True)
class PartInput:
    """The spans ``[first_span, end_span)`` of an input. `going`: a bit for each of their rows that is removed, None if
    none is."""

    segment: TopicSegment
    first_span: int
    end_span: int
    going: bytes | None

    @property
    def first_row(self) -> int:
        return sum(span.records for span in self.segment.spans[: self.first_span])

    @property
    def rows(self) -> int:
        return sum(span.records for span in self.segment.spans[self.first_span : self.end_span])


@dataclass(frozen=True)
class Part:
    """A stretch of the result. `inputs` are in the order of the log."""

    inputs: tuple[PartInput, ...]

    def rewrite(self, level: int) -> Rewrite:
        """Its inputs without all rows that are removed, or that are in other parts."""
        segments = [each.segment for each in self.inputs]
        going = RowSet(segments)
        for each in self.inputs:
            first = going.first_row(each.segment)
            begin, end = first + each.first_row, first + each.first_row + each.rows
            going.add(np.arange(first, begin))
            going.add(np.arange(end, first + each.segment.records))
            if each.going is not None:
                bits = np.unpackbits(np.frombuffer(each.going, np.uint8), count=each.rows)
                going.add(begin + np.flatnonzero(bits))
        return Rewrite(by_run(segments), level, going, checked=True)


@dataclass(frozen=True, slots=True)
class _Span:
    """Where a span of an input is: `at` is the number of the input, `span` that of the span in it."""

    partition: int
    at: int
    span: int
    raw_bytes: int


def split(inputs: Sequence[TopicSegment], going: RowSet, part_bytes: int) -> list[Part]:
    """Parts of the rewrite of `inputs` (in the order of the log) without the rows in `going`, in the order of the
    result, of about `part_bytes` raw bytes each. A span is not cut, so a part may be larger."""
    parts: list[Part] = []
    taken: list[_Span] = []
    size_bytes = 0
    for span in sorted(_kept_spans(inputs, going), key=lambda span: (span.partition, span.at)):
        taken.append(span)
        size_bytes += span.raw_bytes
        if size_bytes >= part_bytes:
            parts.append(_part(inputs, going, taken))
            taken, size_bytes = [], 0
    return [*parts, _part(inputs, going, taken)] if taken else parts


async def made_part(
    store: ObjectStore,
    runtime: Runtime,
    place: SegmentPlace,
    part: Part,
    flavor: ParquetFlavor,
    *,
    level: int,
    segment_bytes: int,
    memory_bytes: int,
    spill_folder: Path,
) -> list[TopicSegment]:
    """Make the segments of `part`, and upload them. No manifest names them yet. Raises `NotFound` (an input left the
    bucket), `Corrupt`, `Unavailable`."""
    rewriter = Rewriter(store, runtime, UpkeepLimits(memory_bytes=memory_bytes), None, spill_folder)
    made = await rewriter.made(place, part.rewrite(level), flavor, segment_bytes)
    for encoded in made:
        await store.put(encoded.segment.key, encoded.body)
    return [encoded.segment for encoded in made]


def as_one_run(inputs: Sequence[TopicSegment], made: Iterable[TopicSegment]) -> list[TopicSegment]:
    """The segments of all parts, in order, as the run that replaces `inputs`."""
    run, archived_at_ms = inputs[-1].run, min(segment.archived_at_ms for segment in inputs)
    return [replace(segment, run=run, archived_at_ms=archived_at_ms) for segment in made]


def _kept_spans(inputs: Sequence[TopicSegment], going: RowSet) -> Iterator[_Span]:
    """Spans of which a row stays."""
    for at, segment in enumerate(inputs):
        row, loses = 0, going.count(segment) > 0
        for number, span in enumerate(segment.spans):
            gone = going.count(segment, row, row + span.records) if loses else 0
            if gone < span.records:
                yield _Span(span.partition, at, number, span.raw_bytes * (span.records - gone) // span.records)
            row += span.records


def _part(inputs: Sequence[TopicSegment], going: RowSet, taken: Sequence[_Span]) -> Part:
    numbers: dict[int, list[int]] = {}
    for span in taken:
        numbers.setdefault(span.at, []).append(span.span)
    return Part(tuple(_input(inputs[at], min(found), max(found) + 1, going) for at, found in sorted(numbers.items())))


def _input(segment: TopicSegment, first_span: int, end_span: int, going: RowSet) -> PartInput:
    whole = PartInput(segment, first_span, end_span, None)
    mask = going.mask(segment, whole.first_row, whole.first_row + whole.rows)
    return PartInput(segment, first_span, end_span, np.packbits(mask).tobytes()) if mask.any() else whole
