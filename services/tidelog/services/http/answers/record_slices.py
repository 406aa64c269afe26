"""Divides fetched records into slices, and writes a slice as text without holding the event loop.

Writing a record as JSON takes microseconds, and an answer may hold half a million records. A slice is at most
`SLICE_RECORDS_MAX` records and about `SLICE_BYTES_MAX` bytes (one record, if that is larger). A group of slices that is
larger than `INLINE_RECORDS_MAX` or `INLINE_BYTES_MAX` is written in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa

SLICE_RECORDS_MAX = 1_000
SLICE_BYTES_MAX = 1 << 18
INLINE_RECORDS_MAX = 100
INLINE_BYTES_MAX = 1 << 14

Group: TypeAlias = Sequence[pa.RecordBatch]
Write: TypeAlias = Callable[[Group], bytes]
"""Writes the records of a group."""


def slices_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The slices of `batches`, in order. No record is copied."""
    for batch in batches:
        count = batch.num_rows
        if not count:
            continue
        fitting = max(1, SLICE_BYTES_MAX * count // max(1, batch.nbytes))
        step = min(SLICE_RECORDS_MAX, fitting)
        for first in range(0, count, step):
            yield batch.slice(first, step)


def groups_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Group]:
    """The slices of `batches`, with small neighbours grouped: a group is within the bounds of one slice."""
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


def is_small(group: Group) -> bool:
    """Whether the event loop may write `group` itself."""
    records = sum(piece.num_rows for piece in group)
    return records <= INLINE_RECORDS_MAX and sum(piece.nbytes for piece in group) <= INLINE_BYTES_MAX


async def written(group: Group, write: Write) -> bytes:
    """The text of `group`. `write` runs in a thread unless the group is small."""
    return write(group) if is_small(group) else await asyncio.to_thread(write, group)


def last_offset(piece: pa.RecordBatch) -> int:
    """The offset of the last record of a slice."""
    offset: int = piece.column("offset")[-1].as_py()
    return offset
