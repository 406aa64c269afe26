"""Values of a read: where it starts, its limits, and the records of partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from tidelog.storage.errors import TidelogError
from tidelog.storage.segments.stored_groups import WholeGroups


class Anchor(Enum):
    """What a start position refers to."""

    OFFSET = "offset"
    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp"
    FROM_END = "from_end"


@dataclass(frozen=True)
class Position:
    """Where to start reading. `value`: the offset, the time in ms, or how many records before the end."""

    anchor: Anchor
    value: int = 0


EARLIEST = Position(Anchor.EARLIEST)
LATEST = Position(Anchor.LATEST)


@dataclass(frozen=True)
class FetchLimits:
    """At least one record is returned if there is one, however large. `max_records` 0, in a fetch of many partitions:
    none, only the offsets of positions and the ends. `wait_ms`: how long to wait for the first record. Not `fresh`:
    without a proof that the broker still leads the shard, so the end may be outdated. `stored`: cold records may come
    as stored row groups, which the caller decodes; the
    first one may have `first_bytes`, if that is more than `max_bytes`. `sent`: recent records may come as their
    producers sent them (`SentBatch`), whose bytes are limited then. `readers`: how many partitions the fetch reads at
    the same time."""

    max_records: int
    max_bytes: int
    wait_ms: int = 0
    fresh: bool = True
    stored: bool = False
    first_bytes: int = 0
    sent: bool = False
    readers: int = 1


@dataclass(frozen=True, slots=True)
class SentBatch:
    """`count` records from `base_offset` on, as their producer sent them: a record batch of Kafka's protocol. Of its
    fields, only the place in the log is not that of these records (`PartDraft.sent`)."""

    base_offset: int
    count: int
    data: bytes

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.count


@dataclass(frozen=True)
class Fetched:
    """`batches` have `records.RECORD_SCHEMA`, or the records are in `stored` or `sent`, if the caller takes that; the
    first of `sent` may begin before the offset that was asked for. The next read begins at `next_offset`.
    `high_watermark` is the end that the answering broker knows. It may be outdated if there are records; a broker that
    reads cold records without the leader knows only the cold end. `cold_end`: None if it is unknown."""

    batches: Sequence[pa.RecordBatch]
    next_offset: int
    log_start_offset: int
    high_watermark: int
    cold_end: int | None = None
    stored: WholeGroups | None = None
    sent: Sequence[SentBatch] = ()


@dataclass(frozen=True)
class FetchPart:
    """A partition of a fetch of many: its records from `offset` on, at most `max_bytes` of them (at least one record).
    The leader looks up a `Position`, so that it costs no call of its own."""

    topic: str
    partition: int
    offset: int | Position
    max_bytes: int

    @property
    def begin(self) -> int:
        """The offset of a part that the leader has looked up."""
        assert isinstance(self.offset, int), "an answer's part has an offset"
        return self.offset


@dataclass(frozen=True)
class FetchedPart:
    """The answer for one partition: `fetched`, or the `error` that a fetch of it alone would raise. `part` is as it was
    asked for, with the offset instead of its position (not if there is an error).

    `fetched` is without records although there are some if the limits were reached before its turn; then `next_offset`
    is below `high_watermark`. `cold`: there is no `fetched`, because the records are in segments and were not read
    within the limits; or because the broker that asked the leader reads them itself."""

    part: FetchPart
    fetched: Fetched | None
    error: TidelogError | None = None
    cold: bool = False

    @property
    def advanced(self) -> bool:
        """Whether reading continues at a later offset than this fetch began at."""
        return self.fetched is not None and self.fetched.next_offset > self.part.begin

    @property
    def next_offset(self) -> int | None:
        """Where reading continues; None after an error, if it was to begin at a position."""
        if self.fetched:
            return self.fetched.next_offset
        return self.part.offset if isinstance(self.part.offset, int) else None
