"""Encodes the rows of a pass that cannot be copied: the pieces of many partitions and entries, in a segment's order.

    entry 17   | a a b c c |          pieces in order:   a17 a18 b17 b18 c17 c18
    entry 18   | a b b c   |          row groups:        | a a a b b | b c c c |

The rows of a row group are one slice of each entry, since entries have the segment's order. The slices are joined, and
one `take` puts their rows in order. So the cost does not depend on the number of pieces, and memory holds the decoded
entries and one row group. Only row groups of entries that have such rows are decoded.

All row groups of a segment are written as one object, from which they are copied into the segment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.storage.archive.topic_plan import Piece
from tidelog.storage.parquet.parquet_encoder import encode_row_groups
from tidelog.storage.parquet.parquet_flavor import ROW_GROUP_RAW_BYTES, ROW_GROUP_ROWS_MAX, settings_for
from tidelog.storage.parquet.row_group_copy import CopySource, RowGroupCopier
from tidelog.storage.segments.topic_segment import SEGMENT_FLAVOR
from tidelog.storage.wal.stored_entry import StoredEntry

Numbers = npt.NDArray[np.int64]
Entries = Sequence[StoredEntry]


@dataclass(frozen=True)
class EncodedRun:
    """Row groups of `source` with the rows of pieces that follow each other, and the bytes of each piece."""

    source: CopySource
    groups: Sequence[int]
    raw_bytes: Sequence[int]

    def added_to(self, copier: RowGroupCopier) -> Sequence[int]:
        """Append the row groups to a segment, and return the bytes of each piece."""
        for index in self.groups:
            copier.add(self.source, index)
        return self.raw_bytes


def encoded_runs(entries: Entries, runs: Sequence[Sequence[Piece]]) -> Sequence[EncodedRun]:
    """Each of `runs`, pieces of `entries` that follow each other in a segment. Raises `Corrupt`, naming an entry."""
    if not runs:
        return ()
    found = [_Run.of(pieces) for pieces in runs]
    _decode(entries, found)
    cuts = [(number, rows) for number, run in enumerate(found) for rows in run.cuts(entries)]
    order = sorted(range(len(cuts)), key=lambda at: len(cuts[at][1]), reverse=True)
    sizes: dict[int, Numbers] = {}

    def joined() -> Iterator[pa.Table]:
        for at in order:
            number, rows = cuts[at]
            table = found[number].joined(entries, rows)
            sizes[at] = _row_bytes(table)
            yield table

    tables = joined()
    largest = next(tables)  # the settings follow from it
    body = encode_row_groups(settings_for(SEGMENT_FLAVOR, largest), chain([largest], tables), b"{}")
    source, places = CopySource("rows", SEGMENT_FLAVOR, body), {at: place for place, at in enumerate(order)}
    made = []
    for number, group in groupby(range(len(cuts)), lambda at: cuts[at][0]):
        of_run = list(group)
        raw_bytes = np.add.reduceat(np.concatenate([sizes[at] for at in of_run]), found[number].starts)
        made.append(EncodedRun(source, [places[at] for at in of_run], raw_bytes.tolist()))
    return made


@dataclass(frozen=True)
class _Run:
    """Pieces as columns. Piece *i* has the rows from `first_rows[i]` on of entry `entries[i]`; in the run, these are
    the rows from `starts[i]` up to `ends[i]`."""

    entries: Numbers
    first_rows: Numbers
    starts: Numbers
    ends: Numbers

    @classmethod
    def of(cls, pieces: Sequence[Piece]) -> _Run:
        rows = ((piece.entry, piece.span.first_row, piece.span.count) for piece in pieces)
        columns = np.array(list(rows), np.int64).T
        ends = np.cumsum(columns[2])
        return cls(columns[0], columns[1], ends - columns[2], ends)

    def cuts(self, entries: Entries) -> Sequence[range]:
        """The rows of each row group, which has about `ROW_GROUP_RAW_BYTES`."""
        end = int(self.ends[-1])
        raw_bytes = sum(entries[number].rows(first, last).nbytes for number, (first, last) in self.slices())
        groups = max(1, round(raw_bytes / ROW_GROUP_RAW_BYTES), -(-end // ROW_GROUP_ROWS_MAX))
        step = -(-end // groups)
        return [range(first, min(first + step, end)) for first in range(0, end, step)]

    def joined(self, entries: Entries, rows: range) -> pa.Table:
        """Some rows of the run, in order."""
        within = self.within(rows)
        slices = within.slices()
        held = pa.concat_tables([entries[number].rows(first, end) for number, (first, end) in slices])
        before = np.zeros(len(entries), np.int64)
        counts = [end - first for _, (first, end) in slices]
        for (number, (first, _)), at in zip(slices, accumulate(counts, initial=0), strict=False):
            before[number] = at - first
        shifts = before[within.entries] + within.first_rows - within.starts
        order = np.arange(len(rows)) + np.repeat(shifts, within.ends - within.starts)
        return held.combine_chunks().take(order)

    def within(self, rows: range) -> _Run:
        """The parts of the pieces that lie in `rows`, as a run."""
        first = int(np.searchsorted(self.ends, rows.start, "right"))
        last = int(np.searchsorted(self.starts, rows.stop, "left"))
        starts = np.maximum(self.starts[first:last], rows.start)
        cut = starts - self.starts[first:last]
        ends = np.minimum(self.ends[first:last], rows.stop)
        return _Run(self.entries[first:last], self.first_rows[first:last] + cut, starts - rows.start, ends - rows.start)

    def slices(self) -> Sequence[tuple[int, tuple[int, int]]]:
        """For each entry that has rows of the run: its number, and the slice with them."""
        numbers, places = np.unique(self.entries, return_inverse=True)
        firsts, ends = np.full(len(numbers), np.iinfo(np.int64).max), np.zeros(len(numbers), np.int64)
        np.minimum.at(firsts, places, self.first_rows)
        np.maximum.at(ends, places, self.first_rows + self.ends - self.starts)
        return list(zip(numbers.tolist(), zip(firsts.tolist(), ends.tolist(), strict=True), strict=True))


def _decode(entries: Entries, runs: Sequence[_Run]) -> None:
    """Decode the row groups that hold rows of `runs`."""
    wanted: defaultdict[int, set[int]] = defaultdict(set)
    for run in runs:
        for number, (first, end) in run.slices():
            wanted[number].update(entries[number].groups_over(first, end))
    for number, groups in wanted.items():
        entries[number].decode(groups)


def _row_bytes(rows: pa.Table) -> Numbers:
    """The bytes of key and value of each row."""
    lengths: Numbers = np.zeros(rows.num_rows, np.int64)
    for name in ("key", "value"):
        lengths += pc.fill_null(pc.binary_length(rows[name]), 0).to_numpy()
    return lengths
