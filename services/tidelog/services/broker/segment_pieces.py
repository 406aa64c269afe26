"""Pieces of cold segments for readers: each read and decoded once for all who are at the same place.

A consumer that goes on from fetch to fetch gets whole row groups, of which a fetch of ordinary size takes only a part;
the rest is kept a while, bounded in bytes, since its next fetch begins there. While one piece is sent to it the next is
read ahead. Who looks up a few records somewhere gets those (`segment_reader`). Reads are bounded in number as those of
old WAL entries are.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelog.services.broker.single_flight import SingleFlight
from tidelog.storage.errors import TidelogError
from tidelog.storage.manifests.manifest import Segment
from tidelog.storage.parquet.parquet_flavor import ROW_GROUP_RAW_BYTES
from tidelog.storage.segments.segment_reader import READ_RECORDS_MAX, SegmentReader

ROW_GROUP_BYTES_MIN = ROW_GROUP_RAW_BYTES * 5 // 4
"""What a row group takes when it is decoded, a little more than `ROW_GROUP_RAW_BYTES` where records are short."""

_log = logging.getLogger(__name__)


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
        self._ahead: set[asyncio.Task[None]] = set()
        self.held_bytes = 0

    @property
    def keeps_row_groups(self) -> bool:
        """Whether there is room for a row group, decoded; without it, reading ahead would be in vain."""
        return self._bytes_max >= ROW_GROUP_BYTES_MIN

    @property
    def piece_bytes(self) -> int:
        """What a piece of a replay should hold, so that the one being sent and the next are here together. A row group
        is the least."""
        return self._bytes_max // 2

    def in_memory(self, segment: Segment, offset: int) -> pa.Table | None:
        """Records of `segment` from `offset` on, if a piece that holds it is here."""
        for place, piece in reversed(self._pieces.items()):
            if place.key == segment.key and place.offset <= offset < piece.next_offset:
                self._pieces.move_to_end(place)
                return piece.records.slice(_row_at(piece.records, offset))
        return None

    async def read(self, segment: Segment, offset: int, bytes_max: int, records_max: int) -> pa.Table:
        """Some records (`RECORD_SCHEMA`) from `offset` on, none if the segment holds no more. Raises `NotFound`,
        `Unavailable`, `Corrupt`."""
        place = _Place(segment.key, offset)
        return await self._flights.run(place, lambda: self._read(segment, offset, bytes_max, records_max))

    def read_ahead(self, segment: Segment, offset: int) -> None:
        """Begin to read the piece at `offset`, unless it is here, under way, or nobody may read more at the moment."""
        place = _Place(segment.key, offset)
        if self._flights.running(place) or self._reads.locked() or self.in_memory(segment, offset) is not None:
            return
        reading = asyncio.create_task(self._read_ahead(segment, offset))
        self._ahead.add(reading)
        reading.add_done_callback(self._ahead.discard)

    async def first_at(self, segment: Segment, timestamp_ms: int) -> int | None:
        """The first offset at or after a time, None if the segment has none. Raises as `read` does."""
        async with self._reads:
            return await self._reader.find_offset_by_timestamp(segment, timestamp_ms)

    async def _read_ahead(self, segment: Segment, offset: int) -> None:
        try:
            await self.read(segment, offset, self.piece_bytes, READ_RECORDS_MAX)
        except TidelogError as error:
            _log.debug("reading ahead in %s failed, its reader will see: %s", segment.key, error)

    async def _read(self, segment: Segment, offset: int, bytes_max: int, records_max: int) -> pa.Table:
        async with self._reads:
            records = await self._reader.read(segment, offset, bytes_max=bytes_max, records_max=records_max)
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
