"""Records written as text in slices, so that neither the event loop nor memory pays for a whole answer at once.

Writing a record as JSON takes microseconds, and an answer may hold half a million. A slice is at most
`SLICE_RECORDS_MAX` records and about `SLICE_BYTES_MAX` bytes (one record, if that is larger). A slice beyond
`INLINE_RECORDS_MAX` or `INLINE_BYTES_MAX` is written in a thread: the event loop is held for no longer than an inline
slice takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

SLICE_RECORDS_MAX = 1_000
SLICE_BYTES_MAX = 1 << 18
INLINE_RECORDS_MAX = 100
INLINE_BYTES_MAX = 1 << 14

Write = Callable[[pa.RecordBatch], bytes]
"""Writes the records of one slice."""


def slices_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """`batches` in their order, cut into slices; no record is copied."""
    for batch in batches:
        count = batch.num_rows
        if not count:
            continue
        fitting = max(1, SLICE_BYTES_MAX * count // max(1, batch.nbytes))
        step = min(SLICE_RECORDS_MAX, fitting)
        for first in range(0, count, step):
            yield batch.slice(first, step)


def groups_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Sequence[pa.RecordBatch]]:
    """The slices of `batches`, several small ones together: each group is within the bounds of one slice."""
    group: list[pa.RecordBatch] = []
    records = size_bytes = 0
    for piece in slices_of(batches):
        records, size_bytes = records + piece.num_rows, size_bytes + piece.nbytes
        if group and (records > SLICE_RECORDS_MAX or size_bytes > SLICE_BYTES_MAX):
            yield group
            group, records, size_bytes = [], piece.num_rows, piece.nbytes
        group.append(piece)
    if group:
        yield group


async def written(piece: pa.RecordBatch, write: Write) -> bytes:
    """What `write` makes of a slice: made here if it is small, else in a thread."""
    if piece.num_rows <= INLINE_RECORDS_MAX and piece.nbytes <= INLINE_BYTES_MAX:
        return write(piece)
    return await asyncio.to_thread(write, piece)


def last_offset(piece: pa.RecordBatch) -> int:
    """The offset of the last record of a slice."""
    offset: int = piece.column("offset")[-1].as_py()
    return offset
