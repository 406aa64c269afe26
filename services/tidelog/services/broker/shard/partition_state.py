"""One partition as its shard's leader knows it.

    0 ........ log start ........ cold end ............ high watermark ...... next offset
                    segments (manifest)    spans of WAL entries      buffered, not readable

The manifest and the spans change in one step each, without an await between, so every reader sees a log without gap or
overlap (inv. 5). Only records below the high watermark may be read (inv. 1).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidelog.services.broker.read.hot_tail import EntryName
from tidelog.services.broker.shard.failure import Failure
from tidelog.services.broker.write.idempotence import ProducerTable
from tidelog.storage.errors import NotFound, OutOfRange, RecordsLost
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.losses import loss_at
from tidelog.storage.manifests.manifest import Manifest, Segment
from tidelog.storage.wal_entry import ProducerMark, Span


@dataclass(frozen=True, slots=True)
class HotSpan:
    """Committed records of a partition in a WAL entry. `timestamp_ms_max` is None if only the entry can tell."""

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
    """Mutable, owned by the event loop."""

    def __init__(self, topic: str, shard: int, manifest: Manifest, producers: ProducerTable | None = None) -> None:
        self.topic = topic
        self.shard = shard
        self.manifest = manifest
        self.next_offset = manifest.cold_end
        self.high_watermark = manifest.cold_end
        self.producers = ProducerTable() if producers is None else producers
        self.deleted = False
        self.last_outcome: asyncio.Future[Failure | None] | None = None
        self._spans: list[HotSpan] = []
        self._commit_waiters: set[asyncio.Future[None]] = set()

    @property
    def topic_partition(self) -> TopicPartition:
        return self.manifest.topic_partition

    @property
    def log_start_offset(self) -> int:
        return self.manifest.log_start_offset

    @property
    def cold_end(self) -> int:
        return self.manifest.cold_end

    def recover(self, spans: Sequence[HotSpan], marks: Sequence[ProducerMark], holes: Sequence[int] = ()) -> None:
        """Take over what the WAL holds beyond the manifest, found before this partition was first asked for. Offsets
        that lack between two entries were in one of the `holes` between them, and are lost. Raises `RecordsLost` if
        there is none."""
        self.producers.restore((*self.manifest.producers, *marks))
        for span in spans:
            if span.base_offset > self.high_watermark:
                self.commit(self._lost_before(span, holes))
            if span.next_offset > self.cold_end:
                self.commit(span)
        self.next_offset = self.high_watermark

    def _lost_before(self, span: HotSpan, holes: Sequence[int]) -> HotSpan:
        """The offsets that lack before `span`, in the hole that held them, or the first of those that did."""
        after = self._spans[-1].entry.seq if self._spans else -1
        lost = next((seq for seq in holes if after < seq < span.entry.seq), None)
        if lost is None:
            text = (
                f"offsets {self.high_watermark} to {span.base_offset - 1} are neither in a segment nor in the WAL: if "
                "the topic was not deleted just now, they are lost (inv. 5)"
            )
            name = f"partition {self.topic_partition.partition} of {self.topic!r}"
            raise RecordsLost(name, text, first_offset=self.high_watermark, next_offset=span.base_offset)
        count = span.base_offset - self.high_watermark
        return HotSpan(EntryName(span.entry.shard, lost), self.high_watermark, count, first_row=0)

    def assign(self, count: int) -> int:
        """The base offset for `count` records that are being buffered."""
        base_offset = self.next_offset
        self.next_offset += count
        return base_offset

    def commit(self, span: HotSpan) -> None:
        """`span` is in the log: readable from now on."""
        assert span.base_offset <= self.high_watermark < span.next_offset, "offsets in the WAL are dense (inv. 4)"
        self._spans.append(span)
        self.high_watermark = span.next_offset

    def wake(self) -> None:
        """Tell who waits that there is something new."""
        waiters, self._commit_waiters = self._commit_waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def archived(self, manifest: Manifest) -> None:
        """Go over to a newer manifest: spans that it covers are dropped in the same step (inv. 5)."""
        if manifest.version <= self.manifest.version:
            return
        assert manifest.cold_end <= self.high_watermark, "only what is committed is archived (inv. 1)"
        self.manifest = manifest
        covered = bisect_right(self._spans, manifest.cold_end, key=lambda span: span.next_offset)
        del self._spans[:covered]

    def grown(self, manifest: Manifest) -> None:
        """Go over to a newer manifest where nothing is known of the log beyond it: it ends at the cold end."""
        assert not self._spans, "only a leader knows spans"
        self.manifest = manifest
        self.high_watermark = manifest.cold_end

    def spans_from(self, offset: int) -> Iterator[HotSpan]:
        """The spans that hold `offset` and what follows, as they are now."""
        first = bisect_right(self._spans, offset, key=lambda span: span.next_offset)
        return iter(self._spans[first:])

    def segment_at(self, offset: int) -> Segment:
        """The segment that holds `offset`, which lies below the cold end, or what follows it there (inv. 5)."""
        segments = self.manifest.segments
        return segments[bisect_right(segments, offset, key=lambda segment: segment.next_offset)]

    def check_readable(self, offset: int) -> None:
        """Raises `OutOfRange` for an offset that is not in the log, `NotFound` once the topic is deleted."""
        if self.deleted:
            raise NotFound(f"topic {self.topic!r} was deleted")
        if not self.log_start_offset <= offset <= self.high_watermark:
            raise OutOfRange(
                f"partition {self.topic_partition.partition} of {self.topic!r} holds offsets "
                f"{self.log_start_offset} to {self.high_watermark} (exclusive), not {offset}",
                log_start_offset=self.log_start_offset,
                high_watermark=self.high_watermark,
            )

    def check_not_lost(self, offset: int) -> None:
        """Raises `RecordsLost` for an offset that is recorded as lost."""
        if loss := loss_at(self.manifest.losses, offset):
            reason = "held records that are recorded as lost"
            raise RecordsLost(loss.key, reason, first_offset=loss.first_offset, next_offset=loss.next_offset)

    def next_commit(self) -> asyncio.Future[None]:
        """Done at the next commit (or deletion). Whoever stops waiting cancels it."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._commit_waiters.add(waiter)
        waiter.add_done_callback(self._commit_waiters.discard)
        return waiter
