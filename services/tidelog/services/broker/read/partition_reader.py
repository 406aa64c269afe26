"""Reads committed records of a partition: from segments below the cold end, from WAL entries above it.

- The partition's state says which object contains an offset, and recent ones are in memory, so steady reading lists
  nothing.
- Each step uses the state as it is then, so a read may run while the archiver moves the cold end (inv. 5). If a WAL
  entry was archived and deleted, or a segment was merged, the newest manifest says where the records are now.
- An object that is missing without a replacement (`_expect_moved`, `_expect_archived`), or damaged, makes its offsets
`RecordsLost`. A
  fetch returns the records before them; one that begins in them gets the error, which contains the next readable
  offset.
- A caller that takes stored row groups (`FetchLimits.stored`) gets those of a segment, if they hold no records of other
  partitions and are within its limits: they are checked, but not decoded.
- A fetch that begins where another one ended is treated as part of a replay: it gets what is in memory, and two more
  pieces are read ahead while it is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from cachetools import LRUCache

from tidelog.services.broker.api.fetch import FetchLimits, SentBatch
from tidelog.services.broker.read.entry_reader import EntryReader
from tidelog.services.broker.read.read_budget import ReadBudget
from tidelog.services.broker.read.segment_pieces import SegmentPieces
from tidelog.services.broker.read.sent_reads import read_sent
from tidelog.services.broker.read.stored_pieces import StoredPieces
from tidelog.services.broker.shard.partition_state import HotSpan, PartitionState
from tidelog.services.broker.shard.record_columns import timestamps_ms
from tidelog.services.broker.telemetry.measurements import Measurements
from tidelog.storage.errors import Corrupt, NotFound, RecordsLost, Unavailable
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.segment_list import FoundSpan
from tidelog.storage.manifests.shard_values import SegmentSpan
from tidelog.storage.segments.segment_reader import READ_RECORDS_MAX
from tidelog.storage.segments.span_groups import GroupBounds
from tidelog.storage.segments.stored_groups import WholeGroups
from tidelog.storage.wal.wal import Wal

ENDS_MAX = 10_000
"""Ends of fetches that are remembered to recognize replays."""

STORED_BYTES_MIN = 1 << 18
"""Fewer bytes of records are decoded here and joined with those behind them, because opening a Parquet file takes about
a millisecond."""

IS_MISSING = "is missing, and nothing has replaced it"

_PLACES = ["partition"]


class Partitions(Protocol):
    """The source of partition states, as far as a reader needs it."""

    @property
    def wal(self) -> Wal:
        """The WAL with the records that are not cold."""

    async def refresh(self, state: PartitionState) -> None:
        """Apply the newest manifest to `state`, with its list."""

    async def read_list(self, _state: PartitionState, /) -> None:
        """Read the list of a partition whose view lacks it."""


@dataclass(frozen=True)
class PartRead:
    """What a read found: `batches` (`RECORD_SCHEMA`), or records in `stored` row groups, or as they were `sent`; and
    the next offset to read."""

    batches: Sequence[pa.RecordBatch]
    next_offset: int
    stored: WholeGroups | None = None
    sent: Sequence[SentBatch] = ()


class PartitionReader:
    """Raises `OutOfRange`, `NotFound`, `Unavailable`, `Corrupt`."""

    def __init__(
        self, entries: EntryReader, segments: SegmentPieces, stored: StoredPieces, measurements: Measurements
    ) -> None:
        self._entries = entries
        self._segments = segments
        self._stored = stored
        self._measurements = measurements
        self._fetch_ends: LRUCache[tuple[TopicPartition, int], None] = LRUCache(ENDS_MAX)

    async def fetch(self, partitions: Partitions, state: PartitionState, offset: int, limits: FetchLimits) -> PartRead:
        """As `read`; as they were sent, or as stored row groups, where the limits take that and it pays."""
        if limits.sent and (sent := read_sent(self._entries.hot_tail, state, offset, limits)):
            payload_bytes = sum(len(batch.data) for batch in sent)
            self._measurements.fetched(state.topic, sum(batch.count for batch in sent), payload_bytes)
            return PartRead((), sent[-1].next_offset, sent=sent)
        if limits.stored and (stored := await self._read_stored(partitions, state, offset, limits)):
            self._handed_out(state, stored, limits)
            return PartRead((), stored.next_offset, stored)
        return PartRead(*await self.read(partitions, state, offset, limits))

    async def read(
        self, partitions: Partitions, state: PartitionState, offset: int, limits: FetchLimits
    ) -> tuple[Sequence[pa.RecordBatch], int]:
        """Batches (`RECORD_SCHEMA`) from `offset` on within `limits`, none at the end, and the next offset to read."""
        budget = ReadBudget(limits.max_records, limits.max_bytes)
        replayed = self._segments.keeps_pieces(limits.readers) and (state.topic_partition, offset) in self._fetch_ends
        try:
            while not budget.spent and offset < state.high_watermark:
                state.check_readable(offset)
                state.check_not_lost(offset)
                if offset >= state.cold_end:
                    offset = await self._read_span(partitions, state, offset, budget)
                elif state.lacks_list:
                    await partitions.read_list(state)
                elif (found := state.cold_span(offset)) is None:
                    offset = state.cold_end
                elif budget.well_filled and (replayed or self._segments.in_memory(found, offset) is None):
                    break  # the answer is large enough; the next fetch reads on, and a replay is sent piece by piece
                else:
                    offset = await self._read_segment(partitions, state, found, offset, budget, replayed=replayed)
        except RecordsLost:
            if not budget.records:
                raise  # otherwise the records before them are returned, and the next fetch fails
        self._measurements.fetched(state.topic, budget.records, budget.payload_bytes)
        if budget.records and offset < state.cold_end:
            self._fetch_ends[state.topic_partition, offset] = None
            if replayed:
                self._read_ahead(state, offset)
        return budget.batches(), offset

    async def first_at(self, partitions: Partitions, state: PartitionState, timestamp_ms: int) -> int:
        """The offset of the first record at or after `timestamp_ms`, the high watermark if there is none."""
        offset = await self._cold_first_at(partitions, state, timestamp_ms)
        if offset is not None:
            return offset
        for span in state.spans_from(max(state.cold_end, state.log_start_offset)):
            if span.timestamp_ms_max is None or span.timestamp_ms_max >= timestamp_ms:
                first = _first_offset(await self._span_records(partitions, state, span), timestamp_ms)
                if first is not None:
                    return first
        return state.high_watermark

    async def hot_timestamp_ms(self, partitions: Partitions, state: PartitionState) -> int:
        """The largest timestamp of the records above the cold end; -1 if there are none."""
        latest_ms = -1
        for span in state.spans_from(max(state.cold_end, state.log_start_offset)):
            if span.timestamp_ms_max is None or span.timestamp_ms_max > latest_ms:
                times = timestamps_ms(await self._span_records(partitions, state, span))
                latest_ms = max(latest_ms, int(times.max(initial=-1)))
        return latest_ms

    async def _cold_first_at(self, partitions: Partitions, state: PartitionState, timestamp_ms: int) -> int | None:
        """The first offset at or after a time below the cold end, None if there is none."""
        offset = state.log_start_offset
        while True:
            while state.lacks_list:
                await partitions.read_list(state)
            if (found := state.view.find(offset, timestamp_ms)) is None:
                return None
            self._measurements.cold_get(state.topic)
            try:
                first = await self._segments.first_at(found, timestamp_ms, offset)
            except NotFound as missing:
                await self._expect_moved(partitions, state, found, missing)
                offset = max(offset, state.log_start_offset)
                continue
            except Corrupt as fault:
                raise _lost(fault.name, fault.reason, found.span) from fault
            if first is not None:
                return first
            offset = found.span.next_offset

    async def latest_timestamp_ms(self, partitions: Partitions, state: PartitionState, offset: int, count: int) -> int:
        """The largest timestamp of `count` records from `offset` on; -1 (none, as in Kafka) if they were deleted."""
        if offset < state.log_start_offset:
            return -1
        latest_ms, end = -1, min(offset + count, state.high_watermark)
        while offset < end:
            batches, offset = await self.read(partitions, state, offset, FetchLimits(end - offset, 1 << 62))
            latest_ms = max((latest_ms, *(int(timestamps_ms(batch).max()) for batch in batches)))
        return latest_ms

    async def _read_stored(
        self, partitions: Partitions, state: PartitionState, offset: int, limits: FetchLimits
    ) -> WholeGroups | None:
        """Row groups of the segment that holds `offset`. None if they hold too little, or more than is wanted."""
        while offset < state.cold_end:
            state.check_readable(offset)
            state.check_not_lost(offset)
            if (found := state.cold_span(offset)) is None:
                return None
            try:
                stored = await self._stored.read(found, offset, _bounds(limits))
            except NotFound as missing:
                await self._expect_moved(partitions, state, found, missing)
            except Corrupt as fault:
                raise _lost(fault.name, fault.reason, found.span) from fault
            else:
                return stored if stored and stored.raw_bytes >= STORED_BYTES_MIN else None
        return None

    def _handed_out(self, state: PartitionState, stored: WholeGroups, limits: FetchLimits) -> None:
        """Count `stored`, and read ahead if they belong to a replay."""
        self._measurements.cold_get(state.topic)
        self._measurements.fetched(state.topic, stored.records, stored.raw_bytes)
        replayed = (state.topic_partition, stored.offset) in self._fetch_ends
        self._fetch_ends[state.topic_partition, stored.next_offset] = None
        if replayed and (found := state.cold_span(stored.next_offset)):
            self._stored.read_ahead(found, stored.next_offset, _bounds(limits))

    async def _read_segment(
        self,
        partitions: Partitions,
        state: PartitionState,
        found: FoundSpan,
        offset: int,
        budget: ReadBudget,
        *,
        replayed: bool,
    ) -> int:
        records = self._segments.in_memory(found, offset)
        if records is None:
            self._measurements.cold_get(state.topic)
            try:
                records = await self._segments.read(found, offset, *self._wanted(budget, replayed=replayed))
            except NotFound as missing:
                await self._expect_moved(partitions, state, found, missing)
                return offset
            except Corrupt as fault:
                raise _lost(fault.name, fault.reason, found.span) from fault
        if not records.num_rows:
            return found.span.next_offset
        budget.take(records)
        return budget.next_offset or offset

    def _read_ahead(self, state: PartitionState, offset: int) -> None:
        """Read ahead the piece at `offset`, and the next one if both fit."""
        found = None if state.lacks_list else state.cold_span(offset)
        behind = self._segments.read_ahead(found, offset) if found else None
        if behind is not None and self._segments.has_room() and (following := state.cold_span(behind)):
            self._segments.read_ahead(following, behind)

    def _wanted(self, budget: ReadBudget, *, replayed: bool) -> tuple[int, int]:
        """Bytes and records to read: what is left of the budget, or a whole piece for a replay."""
        if replayed:
            return self._segments.piece_bytes, READ_RECORDS_MAX
        return max(1, budget.bytes_left), budget.records_left

    async def _read_span(self, partitions: Partitions, state: PartitionState, offset: int, budget: ReadBudget) -> int:
        span = next(state.spans_from(offset))
        records = self._entries.in_memory(span.entry)
        if records is None:
            records = await self._from_bucket(partitions, state, span)
            if records is None:
                return offset  # archived meanwhile; the state is updated
        skipped = offset - span.base_offset
        rows = records.slice(span.first_row + skipped, span.count - skipped)
        if rows.num_rows != span.count - skipped or rows["offset"][0].as_py() != offset:
            reason = f"does not hold offset {offset} of {state.topic}/{state.topic_partition.partition}"
            raise _lost(partitions.wal.key(span.entry.seq), reason, span)
        budget.take(rows.drop_columns(_PLACES))
        return budget.next_offset or offset

    async def _from_bucket(self, partitions: Partitions, state: PartitionState, span: HotSpan) -> pa.Table | None:
        """The records of the entry that contains `span`; None if it was archived and deleted."""
        self._measurements.cold_get(state.topic)
        try:
            return await self._entries.read(partitions.wal, span.entry)
        except NotFound as missing:
            await self._expect_archived(partitions, state, span, missing)
            return None
        except Corrupt as fault:
            raise _lost(fault.name, fault.reason, span) from fault

    async def _expect_moved(
        self, partitions: Partitions, state: PartitionState, found: FoundSpan, missing: NotFound
    ) -> None:
        """Return if a missing segment has left the list; `state` then says where its records are, if they are not
        deleted. A segment is deleted only after a version without it was appended. So if the newest version still lists
        it, something else has deleted it, and this raises `RecordsLost`."""
        await partitions.refresh(state)
        state.check_exists()
        if state.view.segments is not None and state.view.segments.named(found.segment.key):
            raise _lost(found.segment.key, IS_MISSING, found.span) from missing

    async def _expect_archived(
        self, partitions: Partitions, state: PartitionState, span: HotSpan, missing: NotFound
    ) -> None:
        """Return if the records of a missing entry are in a segment, as `state` knows then. Entries are deleted only
        after a version that archives them was appended. Otherwise raises `RecordsLost`, because something else has
        deleted the entry; or `Unavailable` if the floor has passed it, because another broker has archived it."""
        await partitions.refresh(state)
        state.check_exists()
        if span.base_offset < state.cold_end:
            return
        if (await partitions.wal.floor()).number > span.entry.seq:
            offset = f"offset {span.base_offset} of {state.topic}/{state.topic_partition.partition}"
            raise Unavailable(f"another broker has archived {offset}. Retry") from missing
        raise _lost(partitions.wal.key(span.entry.seq), IS_MISSING, span) from missing

    async def _span_records(self, partitions: Partitions, state: PartitionState, span: HotSpan) -> pa.Table:
        records = self._entries.in_memory(span.entry)
        if records is None:
            records = await self._from_bucket(partitions, state, span)
        if records is None:
            raise Unavailable(f"records from offset {span.base_offset} on were archived during the search. Retry")
        deleted = max(0, state.log_start_offset - span.base_offset)
        return records.slice(span.first_row + deleted, span.count - deleted)


def _bounds(limits: FetchLimits) -> GroupBounds:
    return GroupBounds(limits.max_bytes, limits.max_records, limits.first_bytes)


def _first_offset(records: pa.Table, timestamp_ms: int) -> int | None:
    rows = np.flatnonzero(timestamps_ms(records) >= timestamp_ms)
    return int(records["offset"][int(rows[0])].as_py()) if len(rows) else None


def _lost(key: str, reason: str, place: HotSpan | SegmentSpan) -> RecordsLost:
    """The error that the object `key`, which contains `place`, cannot be read."""
    return RecordsLost(key, reason, first_offset=place.base_offset, next_offset=place.next_offset)
