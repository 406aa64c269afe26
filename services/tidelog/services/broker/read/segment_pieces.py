"""Keeps decoded pieces of cold segments in memory, so that each is read once for all consumers at the same place.

A consumer that replays a partition gets whole row groups. A fetch takes only a part of one; the rest is kept, within a
bound of bytes, because the next fetch begins there. While one piece is sent, the next two are read ahead in parallel,
so that one can be decoded while the other is transferred. The second one is skipped if it would displace a piece that
was read ahead for another consumer. A lookup of a few records reads only those (`segment_reader`). The number of
parallel reads is bounded, together with those of old WAL entries.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from cachetools import LRUCache

from tidelog.storage.errors import TidelogError
from tidelog.storage.manifests.manifest import Segment
from tidelog.storage.parquet.parquet_flavor import ROW_GROUP_RAW_BYTES
from tidelog.storage.segments.segment_reader import READ_RECORDS_MAX, SegmentReader
from tidelog.storage.single_flight import SingleFlight

ROW_GROUP_BYTES_MIN = ROW_GROUP_RAW_BYTES * 5 // 4
"""The size of a decoded row group: a little more than `ROW_GROUP_RAW_BYTES` where records are short."""

PIECES = 3
"""Pieces of a replay: the one being sent and two ahead."""

_log = logging.getLogger(__name__)


_Place = tuple[str, int]
"""A read: the key of a segment and the offset at which it begins."""


@dataclass(eq=False)
class _Piece:
    """The records ``[offset, next_offset)`` of the segment `key`. `requested`: a fetch has used it; otherwise it was
    read ahead. The cache maps it to its records, so a scan over the keys does not change what was used last."""

    key: str
    offset: int
    next_offset: int
    size_bytes: int
    requested: bool = False


def _size_bytes(records: pa.Table) -> int:
    return records.nbytes


class SegmentPieces:
    """Pieces of at most `bytes_max` together; the least recently used are dropped first."""

    def __init__(self, reader: SegmentReader, reads: asyncio.Semaphore, bytes_max: int) -> None:
        self._reader = reader
        self._reads = reads
        self._bytes_max = bytes_max
        self._pieces: LRUCache[_Piece, pa.Table] = LRUCache(bytes_max, getsizeof=_size_bytes)
        self._flights: SingleFlight[_Place, pa.Table] = SingleFlight()
        self._ahead: set[asyncio.Task[None]] = set()

    @property
    def held_bytes(self) -> int:
        return int(self._pieces.currsize)

    @property
    def keeps_row_groups(self) -> bool:
        """Whether a decoded row group fits; otherwise reading ahead is useless."""
        return self._bytes_max >= ROW_GROUP_BYTES_MIN

    @property
    def piece_bytes(self) -> int:
        """The size of a piece of a replay, at least a row group, so that all `PIECES` fit together."""
        return self._bytes_max // PIECES

    def in_memory(self, segment: Segment, offset: int) -> pa.Table | None:
        """Records of `segment` from `offset` on, if a piece in memory contains it."""
        piece = self._find(segment, offset)
        if piece is None:
            return None
        piece.requested = True
        records = self._pieces[piece]
        return records.slice(_row_at(records, offset))

    async def read(self, segment: Segment, offset: int, bytes_max: int, records_max: int) -> pa.Table:
        """Some records (`RECORD_SCHEMA`) from `offset` on, none if the segment has no more. Raises `NotFound`,
        `Unavailable`, `Corrupt`."""
        place = (segment.key, offset)
        records = await self._flights.run(place, lambda: self._read(segment, offset, bytes_max, records_max))
        if piece := self._find(segment, offset):
            piece.requested = True
        return records

    def read_ahead(self, segment: Segment, offset: int) -> int | None:
        """Start to read the piece at `offset`, unless it is in memory or under way, or all parallel reads are in use.
        Returns where it ends, None if that is not known."""
        if piece := self._find(segment, offset):
            self._pieces.get(piece)  # counts as a use
        elif not (self._flights.running((segment.key, offset)) or self._reads.locked()):
            reading = asyncio.create_task(self._read_ahead(segment, offset))
            self._ahead.add(reading)
            reading.add_done_callback(self._ahead.discard)
        return self._reader.end_of_read(segment, offset, bytes_max=self.piece_bytes)

    def has_room(self) -> bool:
        """Whether another row group fits beside those that are read ahead and were not requested yet."""
        ahead_bytes = sum(piece.size_bytes for piece in self._pieces if not piece.requested)
        return ahead_bytes + (len(self._ahead) + 1) * ROW_GROUP_BYTES_MIN <= self._bytes_max

    async def first_at(self, segment: Segment, timestamp_ms: int) -> int | None:
        """The first offset at or after a time, None if the segment has none. Raises like `read`."""
        async with self._reads:
            return await self._reader.find_offset_by_timestamp(segment, timestamp_ms)

    async def _read_ahead(self, segment: Segment, offset: int) -> None:
        place = (segment.key, offset)
        try:
            await self._flights.run(place, lambda: self._read(segment, offset, self.piece_bytes, READ_RECORDS_MAX))
        except TidelogError as error:
            _log.debug("cannot read ahead in %s; the fetch that needs it retries: %s", segment.key, error)

    async def _read(self, segment: Segment, offset: int, bytes_max: int, records_max: int) -> pa.Table:
        async with self._reads:
            records = await self._reader.read(segment, offset, bytes_max=bytes_max, records_max=records_max)
        if records.num_rows and records.nbytes <= self._bytes_max:
            next_offset = records.column("offset")[-1].as_py() + 1
            self._keep(_Piece(segment.key, offset, next_offset, records.nbytes), records)
        return records

    def _keep(self, piece: _Piece, records: pa.Table) -> None:
        for older in [known for known in self._pieces if (known.key, known.offset) == (piece.key, piece.offset)]:
            del self._pieces[older]
        self._pieces[piece] = records

    def _find(self, segment: Segment, offset: int) -> _Piece | None:
        for piece in self._pieces:
            if piece.key == segment.key and piece.offset <= offset < piece.next_offset:
                return piece
        return None


def _row_at(records: pa.Table, offset: int) -> int:
    return int(np.searchsorted(records.column("offset").to_numpy(), offset))
