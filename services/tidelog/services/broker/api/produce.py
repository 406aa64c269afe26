"""Values of a produce request: the records, how they are appended, and where they went."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pyarrow as pa


class Acks(Enum):
    """When a produce is answered: at once, once in the leader's memory, once committed on the bucket."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"


@dataclass(frozen=True)
class ProducerSequence:
    """Makes a retry append at most once (inv. 7): the batch's first record has `first_sequence`, the next one more."""

    producer_id: str
    producer_epoch: int
    first_sequence: int


@dataclass(frozen=True)
class Draft:
    """Records to append. `records` has `records.DRAFT_SCHEMA`; `partitions` (int32, a null: let the broker choose)
    goes with them row by row, or is None when no row names one. `body_bytes` is the memory they keep alive."""

    records: pa.Table
    partitions: pa.ChunkedArray[pa.Int32Scalar] | None
    body_bytes: int


@dataclass(frozen=True)
class ProduceOptions:
    """`partition` sends all records to one partition; `expected_offset` and `producer` need it."""

    acks: Acks = Acks.ALL
    partition: int | None = None
    expected_offset: int | None = None
    producer: ProducerSequence | None = None
    auto_create: bool = True


@dataclass(frozen=True)
class Appended:
    """Where records of a request went. `base_offset` is None for `Acks.NONE`; `timestamp_ms` is the append time under
    LogAppendTime, else the largest timestamp of the batch; `duplicate` tells that it was in the log already."""

    partition: int
    base_offset: int | None
    count: int
    timestamp_ms: int
    duplicate: bool = False
