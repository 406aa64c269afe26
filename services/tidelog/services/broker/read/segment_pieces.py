"""Keeps decoded pieces of cold segments in memory, so that each is read once for all consumers at the same place.

A consumer that replays a partition gets the partition's rows of whole row groups. A fetch takes only a part of them;
the rest is kept, within a bound of bytes, because the next fetch begins there. While one piece is sent, the next two
are read ahead in parallel, so that one can be decoded while the other is transferred. The second one is skipped if it
would displace a piece that was read ahead for another consumer. A lookup of a few records reads only those
(`segment_reader`). The number of parallel reads is bounded, together with those of old WAL entries."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from cachetools import LRUCache

from tidelog.storage.errors import TidelogError
from tidelog.storage.manifests.segment_list import FoundSpan
from tidelog.storage.parquet.parquet_flavor import ROW_GROUP_RAW_BYTES
from tidelog.storage.segments.segment_reader import READ_RECORDS_MAX, SegmentReader
from tidelog.storage.single_flight import SingleFlight

ROW_GROUP_BYTES_MIN = ROW_GROUP_RAW_BYTES * 5 // 4
"""The size of a decoded row group: a little more than `ROW_GROUP_RAW_BYTES` where records are short."""

PIECES = 3
"""Pieces of a replay: the one being sent and two ahead."""

PIECE_OVERHEAD_BYTES = 4 * 1024
"""Memory of a piece beside its records."""

_log = logging.getLogger(__name__)


_Place = tuple[str, int, int]
"""A read: the key of a segment, the partition, and the offset at which it begins."""


@dataclass(eq=False)
class _Piece:
    """The records ``[offset, next_offset)`` of `partition` in the segment `key`."""

    key: str
    partition: int
    offset: int
    next_offset: int


class _PieceCache(LRUCache[_Piece, pa.Table]):
    """Maps pieces to their records. A span's pieces are found without a walk over all pieces, of which there are
    thousands if partitions are small. `ahead`: the pieces that were read ahead and no fetch has requested yet."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max, getsizeof=_size_bytes)
        self.ahead: dict[_Piece, int] = {}
        self._of_span: dict[tuple[str, int], list[_Piece]] = {}

    def find(self, key: str, partition: int, offset: int) -> _Piece | None:
        """The piece that contains `offset`."""
        pieces = self._of_span.get((key, partition), ())
        return next((piece for piece in pieces if piece.offset <= offset < piece.next_offset), None)

    def keep(self, piece: _Piece, records: pa.Table) -> None:
        """Add `piece`, or replace the one that begins at the same offset."""
        pieces = self._of_span.get((piece.key, piece.partition), ())
        if former := next((each for each in pieces if each.offset == piece.offset), None):
            del self[former]
        self[piece] = records
        self.ahead[piece] = _size_bytes(records)
        self._of_span.setdefault((piece.key, piece.partition), []).append(piece)

    def __delitem__(self, piece: _Piece) -> None:
        super().__delitem__(piece)
        self.ahead.pop(piece, None)
        pieces = self._of_span[piece.key, piece.partition]
        pieces.remove(piece)
        if not pieces:
            del self._of_span[piece.key, piece.partition]


def _size_bytes(records: pa.Table) -> int:
    return records.nbytes + PIECE_OVERHEAD_BYTES


class SegmentPieces:
    """Pieces of at most `bytes_max` together; the least recently used are dropped first."""

    def __init__(self, reader: SegmentReader, reads: asyncio.Semaphore, bytes_max: int) -> None:
        self._reader = reader
        self._reads = reads
        self._bytes_max = bytes_max
        self._pieces = _PieceCache(bytes_max)
        self._flights: SingleFlight[_Place, pa.Table] = SingleFlight()
        self._ahead: set[asyncio.Task[None]] = set()

    @property
    def held_bytes(self) -> int:
        return int(self._pieces.currsize)

    def keeps_pieces(self, readers: int = 1) -> bool:
        """Whether a piece fits for each of the `readers` partitions that one fetch replays. Otherwise each displaces
        the others', and a whole row group is decoded again for each fetch."""
        return readers * max(ROW_GROUP_BYTES_MIN, self.piece_bytes) <= self._bytes_max

    @property
    def piece_bytes(self) -> int:
        """The size of a piece of a replay, at least a row group, so that all `PIECES` fit together."""
        return self._bytes_max // PIECES

    def in_memory(self, found: FoundSpan, offset: int) -> pa.Table | None:
        """Records of the span from `offset` on, if a piece in memory contains it."""
        piece = self._pieces.find(*_place(found, offset))
        if piece is None:
            return None
        self._pieces.ahead.pop(piece, None)
        records = self._pieces[piece]
        return records.slice(_row_at(records, offset))

    async def read(self, found: FoundSpan, offset: int, bytes_max: int, records_max: int) -> pa.Table:
        """Some records (`RECORD_SCHEMA`) from `offset` on, none if the span has no more. Raises `NotFound`,
        `Unavailable`, `Corrupt`."""
        place = _place(found, offset)
        records = await self._flights.run(place, lambda: self._read(found, offset, bytes_max, records_max))
        if piece := self._pieces.find(*place):
            self._pieces.ahead.pop(piece, None)
        return records

    def read_ahead(self, found: FoundSpan, offset: int) -> int | None:
        """Start to read the piece at `offset`, unless it is in memory or under way, or all parallel reads are in use.
        Returns where it ends, None if that is not known."""
        if piece := self._pieces.find(*_place(found, offset)):
            self._pieces.get(piece)  # counts as a use
        elif not (self._flights.running(_place(found, offset)) or self._reads.locked()):
            reading = asyncio.create_task(self._read_ahead(found, offset))
            self._ahead.add(reading)
            reading.add_done_callback(self._ahead.discard)
        return self._reader.end_of_read(found, offset, bytes_max=self.piece_bytes)

    def has_room(self) -> bool:
        """Whether another row group fits beside those that are read ahead and were not requested yet."""
        ahead_bytes = sum(self._pieces.ahead.values())
        return ahead_bytes + (len(self._ahead) + 1) * ROW_GROUP_BYTES_MIN <= self._bytes_max

    async def first_at(self, found: FoundSpan, timestamp_ms: int, offset: int) -> int | None:
        """The first offset from `offset` on at or after a time, None if the span has none. Raises like `read`."""
        async with self._reads:
            return await self._reader.find_offset_by_timestamp(found, timestamp_ms, offset)

    async def _read_ahead(self, found: FoundSpan, offset: int) -> None:
        place = _place(found, offset)
        try:
            await self._flights.run(place, lambda: self._read(found, offset, self.piece_bytes, READ_RECORDS_MAX))
        except TidelogError as error:
            _log.debug("cannot read ahead in %s; the fetch that needs it retries: %s", found.segment.key, error)

    async def _read(self, found: FoundSpan, offset: int, bytes_max: int, records_max: int) -> pa.Table:
        async with self._reads:
            records = await self._reader.read(found, offset, bytes_max=bytes_max, records_max=records_max)
        if records.num_rows and _size_bytes(records) <= self._bytes_max:
            next_offset = records.column("offset")[-1].as_py() + 1
            self._pieces.keep(_Piece(*_place(found, offset), next_offset), records)
        return records


def _place(found: FoundSpan, offset: int) -> _Place:
    return found.segment.key, found.span.partition, offset


def _row_at(records: pa.Table, offset: int) -> int:
    return int(np.searchsorted(records.column("offset").to_numpy(), offset))
