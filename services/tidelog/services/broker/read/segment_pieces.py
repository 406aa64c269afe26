"""Pieces of cold segments for readers: each read and decoded once for all who are at the same place.

A consumer that goes on from fetch to fetch gets whole row groups, of which a fetch of ordinary size takes only a part;
the rest is kept a while, bounded in bytes, since its next fetch begins there. While one piece is sent to it the next
two are read ahead, side by side: one may be decoded while the other is on its way from the store. The second is left
out where it would push out what was read ahead for another consumer. Who looks up a few records somewhere gets those
(`segment_reader`). Reads are bounded in number as those of old WAL entries are.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tidelog.services.broker.read.single_flight import SingleFlight
from tidelog.storage.errors import TidelogError
from tidelog.storage.manifests.manifest import Segment
from tidelog.storage.parquet.parquet_flavor import ROW_GROUP_RAW_BYTES
from tidelog.storage.segments.segment_reader import READ_RECORDS_MAX, SegmentReader

ROW_GROUP_BYTES_MIN = ROW_GROUP_RAW_BYTES * 5 // 4
"""What a row group takes when it is decoded, a little more than `ROW_GROUP_RAW_BYTES` where records are short."""

PIECES = 3
"""Of a replay: the one being sent, and two ahead."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, order=True)
class _Place:
    """A piece of `key` that was read from `offset` on."""

    key: str
    offset: int


@dataclass(frozen=True)
class _Piece:
    """`asked` for, not only read ahead."""

    records: pa.Table
    next_offset: int
    asked: bool = False


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
        """What a piece of a replay should hold, so that the one being sent and those ahead are here together. A row
        group is the least."""
        return self._bytes_max // PIECES

    def in_memory(self, segment: Segment, offset: int) -> pa.Table | None:
        """Records of `segment` from `offset` on, if a piece that holds it is here."""
        place = self._holding(segment, offset)
        if place is None:
            return None
        self._ask(place)
        records = self._pieces[place].records
        return records.slice(_row_at(records, offset))

    async def read(self, segment: Segment, offset: int, bytes_max: int, records_max: int) -> pa.Table:
        """Some records (`RECORD_SCHEMA`) from `offset` on, none if the segment holds no more. Raises `NotFound`,
        `Unavailable`, `Corrupt`."""
        place = _Place(segment.key, offset)
        records = await self._flights.run(place, lambda: self._read(segment, offset, bytes_max, records_max))
        if place in self._pieces:
            self._ask(place)
        return records

    def read_ahead(self, segment: Segment, offset: int) -> int | None:
        """Begin to read the piece at `offset`, unless it is here, under way, or nobody may read more at the moment.
        Where it ends, None if that is not known."""
        if (here := self._holding(segment, offset)) is not None:
            self._pieces.move_to_end(here)
        elif not (self._flights.running(_Place(segment.key, offset)) or self._reads.locked()):
            reading = asyncio.create_task(self._read_ahead(segment, offset))
            self._ahead.add(reading)
            reading.add_done_callback(self._ahead.discard)
        return self._reader.end_of_read(segment, offset, bytes_max=self.piece_bytes)

    def has_room(self) -> bool:
        """Whether one more row group can be read ahead beside those that are here, or under way, and not asked for."""
        ahead_bytes = sum(piece.records.nbytes for piece in self._pieces.values() if not piece.asked)
        return ahead_bytes + (len(self._ahead) + 1) * ROW_GROUP_BYTES_MIN <= self._bytes_max

    async def first_at(self, segment: Segment, timestamp_ms: int) -> int | None:
        """The first offset at or after a time, None if the segment has none. Raises as `read` does."""
        async with self._reads:
            return await self._reader.find_offset_by_timestamp(segment, timestamp_ms)

    async def _read_ahead(self, segment: Segment, offset: int) -> None:
        place = _Place(segment.key, offset)
        try:
            await self._flights.run(place, lambda: self._read(segment, offset, self.piece_bytes, READ_RECORDS_MAX))
        except TidelogError as error:
            _log.debug("reading ahead in %s failed, its reader will see: %s", segment.key, error)

    async def _read(self, segment: Segment, offset: int, bytes_max: int, records_max: int) -> pa.Table:
        async with self._reads:
            records = await self._reader.read(segment, offset, bytes_max=bytes_max, records_max=records_max)
        if records.num_rows and records.nbytes <= self._bytes_max:
            next_offset = records.column("offset")[-1].as_py() + 1
            self._keep(_Place(segment.key, offset), _Piece(records, next_offset))
        return records

    def _holding(self, segment: Segment, offset: int) -> _Place | None:
        for place, piece in reversed(self._pieces.items()):
            if place.key == segment.key and place.offset <= offset < piece.next_offset:
                return place
        return None

    def _ask(self, place: _Place) -> None:
        self._pieces[place] = replace(self._pieces[place], asked=True)
        self._pieces.move_to_end(place)

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
