"""Values of a read: where it starts, its limits, the records and the log of a partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from tidelog.storage.errors import TidelogError
from tidelog.storage.manifests.manifest import Segment


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


@dataclass(frozen=True)
class FetchLimits:
    """At least one record is returned if there is one, however large. `wait_ms`: how long to wait for the first record.
    Not `fresh`: without a proof that the broker still leads the shard, so the end may be outdated."""

    max_records: int
    max_bytes: int
    wait_ms: int = 0
    fresh: bool = True


@dataclass(frozen=True)
class Fetched:
    """`batches` have `records.RECORD_SCHEMA`; the next read begins at `next_offset`. `high_watermark` is the end that
    the answering broker knows. It may be outdated if there are records; a broker that reads cold records without the
    leader knows only the cold end."""

    batches: Sequence[pa.RecordBatch]
    next_offset: int
    log_start_offset: int
    high_watermark: int


@dataclass(frozen=True)
class FetchPart:
    """A partition of a fetch of many: its records from `offset` on, at most `max_bytes` of them (at least one
    record)."""

    topic: str
    partition: int
    offset: int
    max_bytes: int


@dataclass(frozen=True)
class FetchedPart:
    """The answer for one partition: `fetched`, or the `error` that a fetch of it alone would raise."""

    part: FetchPart
    fetched: Fetched | None
    error: TidelogError | None = None


@dataclass(frozen=True)
class PartitionLog:
    """A consistent snapshot of a partition: segments hold ``[log_start_offset, cold_end)``, the broker's hot tail
    ``[cold_end, high_watermark)``."""

    topic: str
    topic_id: str
    partition: int
    shard: int
    log_start_offset: int
    cold_end: int
    high_watermark: int
    manifest_version: int
    segments: Sequence[Segment]
    store_url: str
