"""The state of one partition in the memory of its shard's leader.

    0 ........ log start ........ cold end ............ high watermark ...... next offset
                    segments (the view)    spans of WAL entries      buffered, not readable

The view of the manifest and the spans change together, without an await in between, so every reader sees a log without
gap or overlap (inv. 5). Only records below the high watermark may be read (inv. 1).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidelog.services.broker.shard.hot_tail import EntryName
from tidelog.services.broker.shard.idempotence import ProducerTable
from tidelog.storage.errors import Denied, Fenced, NotFound, OutOfRange, RecordsLost, Unavailable
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.losses import loss_at
from tidelog.storage.manifests.partition_view import PartitionView
from tidelog.storage.manifests.segment_list import FoundSpan
from tidelog.storage.wal.wal_entry import ProducerMark, Span


@dataclass(frozen=True)
class ShardFailure:
    """Why a shard is not led here: `Fenced` by another leader, `Denied` by the store, or another cause. Records that
    waited for their commit may or may not be in the log."""

    reason: str
    kind: type[Fenced | Denied | Unavailable] = Unavailable

    @property
    def fenced(self) -> bool:
        return self.kind is Fenced

    def error(self) -> Fenced | Denied | Unavailable:
        """A new error to raise: each request gets its own."""
        return self.kind(self.reason)


Outcome = asyncio.Future[ShardFailure | None]
"""The result of a batch: None once it is committed."""


@dataclass(frozen=True, slots=True)
class HotSpan:
    """Committed records of a partition in a WAL entry. `timestamp_ms_max` None: only the entry has it."""

    entry: EntryName
    base_offset: int
    count: int
    first_row: int
    timestamp_ms_max: int | None = None

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.count


def hot_span(entry: EntryName, span: Span, timestamp_ms_max: int | None = None) -> HotSpan:
    return HotSpan(entry, span.base_offset, span.count, span.first_row, timestamp_ms_max)


class PartitionState:
    """Mutable, owned by the event loop. `view`: the partition in a version of the shard's manifest."""

    def __init__(self, topic: str, view: PartitionView, producers: ProducerTable | None = None) -> None:
        self.topic = topic
        self.shard = view.shard
        self.view = view
        self.next_offset = view.cold_end
        self.high_watermark = view.cold_end
        self.producers = ProducerTable() if producers is None else producers
        self.deleted = False
        self.last_outcome: Outcome | None = None
        self._spans: list[HotSpan] = []
        self._commit_waiters: set[asyncio.Future[None]] = set()

    @property
    def topic_partition(self) -> TopicPartition:
        return self.view.place

    @property
    def log_start_offset(self) -> int:
        return self.view.log_start_offset

    @property
    def cold_end(self) -> int:
        return self.view.cold_end

    def recover(self, spans: Sequence[HotSpan], marks: Sequence[ProducerMark], holes: Sequence[int] = ()) -> None:
        """Adopt what the WAL holds beyond the view, as it was read when the shard was opened. Offsets missing
        between two entries were in one of the `holes` between them, and are lost. Raises `RecordsLost` if there is no
        hole."""
        self.producers.restore((*self.view.state.producers, *marks))
        for span in spans:
            if span.base_offset > self.high_watermark:
                self.commit(self._lost_before(span, holes))
            if span.next_offset > self.cold_end:
                self.commit(span)
        self.next_offset = self.high_watermark

    def _lost_before(self, span: HotSpan, holes: Sequence[int]) -> HotSpan:
        """The offsets missing before `span`, attributed to the first hole that can have held them."""
        after = self._spans[-1].entry.seq if self._spans else -1
        lost = next((seq for seq in holes if after < seq < span.entry.seq), None)
        if lost is None:
            text = (
                f"offsets {self.high_watermark} to {span.base_offset - 1} are neither in a segment nor in the WAL; "
                "unless the topic was just deleted, they are lost (inv. 5)"
            )
            name = f"partition {self.topic_partition.partition} of {self.topic!r}"
            raise RecordsLost(name, text, first_offset=self.high_watermark, next_offset=span.base_offset)
        count = span.base_offset - self.high_watermark
        return HotSpan(EntryName(span.entry.shard, lost), self.high_watermark, count, first_row=0)

    def assign(self, count: int) -> int:
        """Assign offsets to `count` records that are being buffered; returns the first."""
        base_offset = self.next_offset
        self.next_offset += count
        return base_offset

    def commit(self, span: HotSpan) -> None:
        """`span` is in the log and can be read from now on."""
        assert span.base_offset <= self.high_watermark < span.next_offset, "offsets in the WAL are dense (inv. 4)"
        self._spans.append(span)
        self.high_watermark = span.next_offset

    def wake(self) -> None:
        waiters, self._commit_waiters = self._commit_waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def apply(self, view: PartitionView) -> None:
        """Switch to `view` if it is newer; the spans that it covers are dropped in the same step (inv. 5)."""
        if view.version <= self.view.version:
            return
        assert view.cold_end <= self.high_watermark, "only what is committed is archived (inv. 1)"
        self.view = view
        covered = bisect_right(self._spans, view.cold_end, key=lambda span: span.next_offset)
        del self._spans[:covered]

    def apply_cold(self, view: PartitionView) -> None:
        """Switch to a newer view on a broker that does not know the WAL: the log ends at the cold end."""
        assert not self._spans, "only a leader knows spans"
        self.view = view
        self.high_watermark = view.cold_end

    def set_deleted(self) -> None:
        """The topic was deleted: fetches that wait for records wake up and fail."""
        self.deleted = True
        self.wake()

    def spans_from(self, offset: int) -> Iterator[HotSpan]:
        """The span that holds `offset` and all later ones, as they are now."""
        first = bisect_right(self._spans, offset, key=lambda span: span.next_offset)
        return iter(self._spans[first:])

    def first_offset_from_entry(self, seq: int) -> int | None:
        """The first offset in the WAL's entry `seq` or a later one; None if there is none."""
        first = bisect_left(self._spans, seq, key=lambda span: span.entry.seq)
        return self._spans[first].base_offset if first < len(self._spans) else None

    @property
    def lacks_list(self) -> bool:
        """Whether `cold_span` needs a list that is not in memory (`ShardPartitions.read_list`)."""
        return self.view.segments is None

    def cold_span(self, offset: int) -> FoundSpan | None:
        """The span of a segment that holds `offset`, or the next one if the offset was compacted away. None: compaction
        left nothing from `offset` to the cold end."""
        return self.view.find(offset)

    def check_readable(self, offset: int) -> None:
        """Raises `OutOfRange` for an offset outside the log, `NotFound` once the topic is deleted."""
        self.check_exists()
        if not self.log_start_offset <= offset <= self.high_watermark:
            raise OutOfRange(
                f"partition {self.topic_partition.partition} of {self.topic!r} holds offsets "
                f"{self.log_start_offset} to {self.high_watermark} (exclusive), not {offset}",
                log_start_offset=self.log_start_offset,
                high_watermark=self.high_watermark,
            )

    def check_exists(self) -> None:
        """Raises `NotFound` once the topic is deleted."""
        if self.deleted:
            raise NotFound(f"topic {self.topic!r} was deleted")

    def check_not_lost(self, offset: int) -> None:
        if loss := loss_at(self.view.state.losses, offset):
            reason = "held records that are recorded as lost"
            raise RecordsLost(loss.key, reason, first_offset=loss.first_offset, next_offset=loss.next_offset)

    @property
    def waiters(self) -> int:
        """How many futures wait for the next commit."""
        return len(self._commit_waiters)

    def add_waiter(self, waiter: asyncio.Future[None]) -> None:
        """Complete `waiter` at the next commit, or when the topic is deleted. One future may wait at many partitions; a
        caller that stops waiting removes it from each."""
        self._commit_waiters.add(waiter)

    def remove_waiter(self, waiter: asyncio.Future[None]) -> None:
        """Forget `waiter`, which may have completed."""
        self._commit_waiters.discard(waiter)
