"""Pieces of cold segments for readers: each read and decoded once for all who are at the same place.

A segment is read by row groups, of which a fetch of ordinary size takes only a part; the rest is kept a while, bounded
in bytes, since the reader's next fetch begins there. Reads are bounded in number as those of old WAL entries are.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelog.services.broker.single_flight import SingleFlight
from tidelog.storage.manifest import Segment
from tidelog.storage.segment_reader import SegmentReader


@dataclass(frozen=True, order=True)
class _Place:
    """A piece of `key` that was read from `offset` on."""

    key: str
    offset: int


@dataclass(frozen=True)
class _Piece:
    records: pa.Table
    next_offset: int


class SegmentPieces:
    """Pieces in memory, those used longest ago dropped first once they hold more than `bytes_max`."""

    def __init__(self, reader: SegmentReader, reads: asyncio.Semaphore, bytes_max: int) -> None:
        self._reader = reader
        self._reads = reads
        self._bytes_max = bytes_max
        self._pieces: OrderedDict[_Place, _Piece] = OrderedDict()
        self._flights: SingleFlight[_Place, pa.Table] = SingleFlight()
        self.held_bytes = 0

    def in_memory(self, segment: Segment, offset: int) -> pa.Table | None:
        """Records of `segment` from `offset` on, if a piece that holds it is here."""
        for place, piece in reversed(self._pieces.items()):
            if place.key == segment.key and place.offset <= offset < piece.next_offset:
                self._pieces.move_to_end(place)
                return piece.records.slice(_row_at(piece.records, offset))
        return None

    async def read(self, segment: Segment, offset: int, bytes_max: int) -> pa.Table:
        """Some records (`RECORD_SCHEMA`) from `offset` on, none if the segment holds no more. Raises `NotFound`,
        `Unavailable`, `Corrupt`."""
        return await self._flights.run(_Place(segment.key, offset), lambda: self._read(segment, offset, bytes_max))

    async def first_at(self, segment: Segment, timestamp_ms: int) -> int | None:
        """The first offset at or after a time, None if the segment has none. Raises as `read` does."""
        async with self._reads:
            return await self._reader.find_offset_by_timestamp(segment, timestamp_ms)

    async def _read(self, segment: Segment, offset: int, bytes_max: int) -> pa.Table:
        async with self._reads:
            records = await self._reader.read(segment, offset, bytes_max=bytes_max)
        if records.num_rows and records.nbytes <= self._bytes_max:
            next_offset = records.column("offset")[-1].as_py() + 1
            self._keep(_Place(segment.key, offset), _Piece(records, next_offset))
        return records

    def _keep(self, place: _Place, piece: _Piece) -> None:
        if known := self._pieces.pop(place, None):
            self.held_bytes -= known.records.nbytes
        self._pieces[place] = piece
        self.held_bytes += piece.records.nbytes
        while self.held_bytes > self._bytes_max:
            _, dropped = self._pieces.popitem(last=False)
            self.held_bytes -= dropped.records.nbytes


def _row_at(records: pa.Table, offset: int) -> int:
    return int(np.searchsorted(records.column("offset").to_numpy(), offset))
