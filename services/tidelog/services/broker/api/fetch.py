"""Values of a read: where it starts, how much it takes, and the records or the picture of the log that it gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from tidelog.storage.manifests.manifest import Segment


class Anchor(Enum):
    """From what a start position counts."""

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
    """At least one record is returned if there is one, however large. `wait_ms`: how long to wait for the first. Not
    `fresh`: without a proof that who answers still leads the shard, so that the end may be an older one."""

    max_records: int
    max_bytes: int
    wait_ms: int = 0
    fresh: bool = True


@dataclass(frozen=True)
class Fetched:
    """`batches` have `records.RECORD_SCHEMA`; reading goes on at `next_offset`. `high_watermark` is the end that is
    known to the broker that answers. Beside records it may be an older one; a broker that reads cold records without
    the leader knows the cold end alone."""

    batches: Sequence[pa.RecordBatch]
    next_offset: int
    log_start_offset: int
    high_watermark: int


@dataclass(frozen=True)
class PartitionLog:
    """One consistent picture of a partition: segments hold ``[log_start_offset, cold_end)``, the broker's hot tail
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
