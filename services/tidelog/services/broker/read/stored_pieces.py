"""Reads row groups as they are stored, for callers that decode them, and reads ahead for replays.

Stored row groups are an eighth of their records for usual events, and nothing is decoded here. So while a consumer
decodes an answer, the broker only fetches the row groups of the next one, within a bound of stored bytes. If there is
no room, those that have waited longest are dropped: their consumer may have left."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeAlias

from tidelog.storage.errors import TidelogError
from tidelog.storage.manifests.segment_list import FoundSpan
from tidelog.storage.segments.segment_reader import SegmentReader
from tidelog.storage.segments.span_groups import GroupBounds
from tidelog.storage.segments.stored_groups import WholeGroups

_log = logging.getLogger(__name__)

_Place: TypeAlias = tuple[str, int, int]
"""The key of a segment, the partition, and the offset from which records are wanted."""


@dataclass(frozen=True)
class _Ahead:
    reading: asyncio.Task[WholeGroups | None]
    stored_bytes: int


class StoredPieces:
    """`bytes_max` bounds the stored bytes that are read ahead; `reads` the parallel reads, together with others."""

    def __init__(self, reader: SegmentReader, reads: asyncio.Semaphore, bytes_max: int) -> None:
        self._reader = reader
        self._reads = reads
        self._bytes_max = bytes_max
        self._ahead: OrderedDict[_Place, _Ahead] = OrderedDict()
        self._ahead_bytes = 0

    async def read(self, found: FoundSpan, offset: int, bounds: GroupBounds) -> WholeGroups | None:
        """See `SegmentReader.read_whole`. Raises `NotFound`, `Unavailable`, `Corrupt`."""
        if ahead := self._taken(_place(found, offset)):
            groups = await ahead.reading
            if groups and groups.is_within(bounds):
                return groups
        return await self._read(found, offset, bounds)

    def read_ahead(self, found: FoundSpan, offset: int, bounds: GroupBounds) -> None:
        """Start to read what the next `read` will want, unless its size is not known or all parallel reads are in
        use."""
        stored_bytes, place = self._reader.whole_bytes(found, offset, bounds), _place(found, offset)
        if not 0 < stored_bytes <= self._bytes_max or place in self._ahead or self._reads.locked():
            return
        while self._ahead_bytes + stored_bytes > self._bytes_max:
            self._drop(next(iter(self._ahead)))
        reading = asyncio.create_task(self._try_to_read(found, offset, bounds))
        self._ahead[place] = _Ahead(reading, stored_bytes)
        self._ahead_bytes += stored_bytes

    def _taken(self, place: _Place) -> _Ahead | None:
        ahead = self._ahead.pop(place, None)
        if ahead:
            self._ahead_bytes -= ahead.stored_bytes
        return ahead

    def _drop(self, place: _Place) -> None:
        if ahead := self._taken(place):
            ahead.reading.cancel()

    async def _try_to_read(self, found: FoundSpan, offset: int, bounds: GroupBounds) -> WholeGroups | None:
        try:
            return await self._read(found, offset, bounds)
        except TidelogError as error:
            _log.debug("cannot read ahead in %s; the fetch that needs it retries: %s", found.segment.key, error)
            return None

    async def _read(self, found: FoundSpan, offset: int, bounds: GroupBounds) -> WholeGroups | None:
        async with self._reads:
            return await self._reader.read_whole(found, offset, bounds)


def _place(found: FoundSpan, offset: int) -> _Place:
    return found.segment.key, found.span.partition, offset
