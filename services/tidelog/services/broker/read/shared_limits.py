"""The limits of a fetch that many partitions share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tidelog.services.broker.api.fetch import Fetched, FetchedPart, FetchLimits, FetchPart
from tidelog.services.broker.shard.record_columns import payload_bytes_total
from tidelog.storage.parquet.parquet_flavor import ROW_GROUP_RAW_BYTES

READS_AT_ONCE = 4
"""Cold partitions that one fetch reads at the same time."""
SHARE_BYTES_MIN = 1 << 18
"""Several partitions are read at the same time only if each may have so many bytes, so that none is read for
nothing."""

FIRST_GROUP_SHARES = 2
"""A stored row group may have so many shares of the bytes, because it cannot be cut; what does not fit is left out."""


class SharedLimits:
    """The rest of `limits`. The first records always fit, unless `limits` allow none; later ones only if they do not
    exceed the limits."""

    def __init__(self, limits: FetchLimits) -> None:
        self._fresh, self.stored, self._sent = limits.fresh, limits.stored, limits.sent
        self.records_left = limits.max_records
        self.bytes_left = limits.max_bytes
        self._group_bytes = max(SHARE_BYTES_MIN, min(ROW_GROUP_RAW_BYTES, limits.max_bytes // 2))
        self._first_fits = limits.max_records > 0

    @property
    def reached(self) -> bool:
        return not self._first_fits and (self.records_left <= 0 or self.bytes_left <= 0)

    @property
    def lacks_room(self) -> bool:
        """Whether a row group probably does not fit any more. Then a cold partition is left for the next fetch, which
        begins with it; otherwise it would get a small piece, and the next fetch would begin within a row group."""
        return self.stored and not self._first_fits and self.bytes_left < self._group_bytes

    @property
    def readers_max(self) -> int:
        """How many partitions may be read at the same time now."""
        share_min = self._group_bytes if self.stored else SHARE_BYTES_MIN
        return max(1, min(READS_AT_ONCE, self.records_left, self.bytes_left // share_min))

    def of(self, part: FetchPart, readers: int = 1) -> FetchLimits:
        """The limits for `part`, which is read at the same time as `readers` - 1 others."""
        share_bytes = self.bytes_left // readers
        return FetchLimits(
            max(1, self.records_left // readers),
            max(1, min(part.max_bytes, share_bytes)),
            fresh=self._fresh,
            stored=self.stored,
            first_bytes=min(part.max_bytes, self.bytes_left, share_bytes * FIRST_GROUP_SHARES),
            sent=self._sent,
            readers=readers,
        )

    def take(self, answer: FetchedPart) -> FetchedPart:
        """Count the records of `answer`, and return it; without its records if they do not fit."""
        if answer.fetched is None or not (answer.fetched.batches or answer.fetched.stored or answer.fetched.sent):
            return answer
        records, size_bytes = _size(answer.fetched)
        if not self._first_fits and (records > self.records_left or size_bytes > self.bytes_left):
            return unread(answer.part, answer.fetched)
        self._first_fits = False
        self.records_left -= records
        self.bytes_left -= size_bytes
        return answer


def within(answers: Iterable[FetchedPart], limits: FetchLimits) -> Sequence[FetchedPart]:
    """`answers` in their order; those whose records do not fit into `limits` are without them."""
    shared = SharedLimits(limits)
    return [shared.take(answer) for answer in answers]


def unread(part: FetchPart, state: Fetched) -> FetchedPart:
    """The answer for a partition from which nothing is read; its ends are those of `state`."""
    return FetchedPart(part, replace(state, batches=(), stored=None, sent=(), next_offset=part.begin))


def _size(fetched: Fetched) -> tuple[int, int]:
    """The records, and the bytes of their keys and values; those of stored row groups are as the footer has them, those
    of batches as they were sent are all that is sent."""
    if fetched.stored:
        return fetched.stored.records, fetched.stored.raw_bytes
    if fetched.sent:
        return sum(batch.count for batch in fetched.sent), sum(len(batch.data) for batch in fetched.sent)
    records = sum(batch.num_rows for batch in fetched.batches)
    return records, sum(payload_bytes_total(batch) for batch in fetched.batches)
