"""Offsets that compaction removed: a client goes on behind them."""

from __future__ import annotations

import struct

import pyarrow as pa

from tidelog.services.broker.api.fetch import Fetched, FetchedPart, FetchPart
from tidelog.services.kafka.apis.fetched_batches import encoded_parts
from tidelog.storage.records import RECORD_SCHEMA

_START = struct.Struct(">q15xi")
"""The base offset, and the difference to the last offset."""


def records(*offsets: int) -> pa.RecordBatch:
    rows = [{"offset": offset, "timestamp": offset, "value": b"v"} for offset in offsets]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


def extents(next_offset: int, *batches: pa.RecordBatch) -> list[tuple[int, int]]:
    """The first offset of each encoded batch, and the one after its last."""
    found = Fetched(batches, next_offset, 0, 100)
    (part,) = encoded_parts([FetchedPart(FetchPart("events", 0, 10, 1 << 20), found)], [3])
    starts = [_START.unpack_from(batch) for batch in part.records]
    return [(base, base + delta + 1) for base, delta in starts]


def test_the_last_batch_reaches_over_the_removed_records_behind_it() -> None:
    assert extents(30, records(12, 13), records(20)) == [(12, 14), (20, 30)]


def test_a_stretch_without_records_is_an_empty_batch() -> None:
    assert extents(30) == [(10, 30)]


def test_nothing_is_returned_at_the_end() -> None:
    assert extents(10) == []
