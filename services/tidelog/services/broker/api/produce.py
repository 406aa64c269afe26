"""Values of a produce request: the records, how to append them, and where they were appended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.storage.errors import TidelogError


class Acks(Enum):
    """When a produce is answered: immediately, once buffered by the leader, once committed in the bucket."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"


@dataclass(frozen=True)
class ProducerSequence:
    """Makes a retry append at most once (inv. 7): the first record has `first_sequence`, each further one is one
    more. `wraps`: sequences are int32 and go from 2**31 - 1 to 0, as in Kafka's protocol. `age_s`: an earlier attempt
    may have sent the batch first so long ago; None: the producer does not say. If the producer is unknown and may have
    been forgotten since then, the batch is refused instead of appended again."""

    producer_id: str
    producer_epoch: int
    first_sequence: int
    wraps: bool = False
    age_s: float | None = None


@dataclass(frozen=True)
class ActiveProducer:
    """A producer that a partition remembers. `last_sequence`: of its last record, as the table of sequences counts it,
    -1 for none; `timestamp_ms`: as its last batch was answered, -1 if another broker answered."""

    producer_id: str
    producer_epoch: int
    last_sequence: int
    timestamp_ms: int


@dataclass(frozen=True)
class Draft:
    """Records to append. `records` has `records.DRAFT_SCHEMA`; `partitions` has one int32 per record (null: the broker
    chooses), or is None if no record names one. `body_bytes`: the memory that they keep alive."""

    records: pa.Table
    partitions: pa.ChunkedArray[pa.Int32Scalar] | None
    body_bytes: int


@dataclass(frozen=True)
class PartDraft:
    """Records for one partition, appended as one batch. `records` and `body_bytes` as in `Draft`. `sent`: the same
    records as the client sent them, for readers that take them so (`fetch.SentBatch`)."""

    topic: str
    partition: int
    records: pa.Table
    body_bytes: int
    producer: ProducerSequence | None = None
    sent: bytes | None = None


@dataclass(frozen=True)
class ProduceOptions:
    """`partition`: for all records; required with `expected_offset` and `producer`. `tell_each`: if only the records
    of some partitions are stored, `Appended.error` says so, instead of an error of the whole request (`Acks.ALL`)."""

    acks: Acks = Acks.ALL
    partition: int | None = None
    expected_offset: int | None = None
    producer: ProducerSequence | None = None
    auto_create: bool = True
    tell_each: bool = False


@dataclass(frozen=True)
class Appended:
    """Where records of a request are. `base_offset` is None for `Acks.NONE`. `timestamp_ms`: the append time with
    LogAppendTime, otherwise the largest timestamp of the batch. `duplicate`: the batch was already in the log. `rows`:
    the indexes of these records in the request, in order; None: all of them. `error`: why these records are not stored,
    or not known to be (`ProduceOptions.tell_each`); then there is no `base_offset`. `log_start_offset`: where the
    partition begins, -1 if this broker does not lead it."""

    partition: int
    base_offset: int | None
    count: int
    timestamp_ms: int
    duplicate: bool = False
    rows: npt.NDArray[np.int64] | None = field(default=None, compare=False)
    error: TidelogError | None = None
    log_start_offset: int = field(default=-1, compare=False)


class Appending(Protocol):
    """Parts that have their places in the log, or are refused. Their outcome is open until they are committed."""

    async def answers(self) -> Sequence[Appended]:
        """One for each part, in order, when `acks` says; ``commit.timeout.ms`` after the placing at the latest. A part
        that is refused, or not known to be in the log, has its `error`. Raises nothing. Call it once."""


def each_told(answers: Sequence[Appended]) -> Sequence[Appended]:
    """`answers`, if there is one without an error. Raises the first error otherwise."""
    if answers and all(answer.error for answer in answers):
        assert answers[0].error
        raise answers[0].error
    return answers


def not_appended(partition: int, rows: npt.NDArray[np.int64] | None, count: int, error: TidelogError) -> Appended:
    """The answer for records that are not stored, or not known to be."""
    return Appended(partition, None, count, 0, rows=rows, error=error)
