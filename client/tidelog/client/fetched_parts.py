"""One fetch and its answer as values: what a consumer plans, and what it keeps until the program takes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from tidelog.client.consumed import TopicPartition
from tidelog.storage.errors import RecordsLost, TidelogError


@dataclass(frozen=True)
class PlannedPart:
    """A partition of a fetch: from `at` on (an offset, or a position that the broker resolves)."""

    partition: TopicPartition
    at: int | str
    turn: int


@dataclass(frozen=True)
class FetchPlan:
    """One fetch from the broker at `leader`; empty: from any broker."""

    leader: str
    parts: tuple[PlannedPart, ...]


@dataclass(frozen=True)
class PartOutcome:
    """A partition's share of an answer: how far it was read, or the error."""

    next_offset: int | None
    high_watermark: int = -1
    log_start_offset: int = 0
    error: TidelogError | None = None


@dataclass(frozen=True)
class Body:
    """The records of an answer. `size_bytes`: in memory."""

    size_bytes: int
    records: Callable[[TopicPartition], pa.Table]

    def first_offset(self, partition: TopicPartition) -> int | None:
        """The offset of the partition's first record here."""
        records = self.records(partition)
        return records.column("offset")[0].as_py() if records.num_rows else None


@dataclass(frozen=True)
class Part:
    """A buffered part: its records are those of `body` for this partition, without those before `begin`. `lost`:
    offsets ``[a, b)`` that the log has lost and that are skipped."""

    partition: TopicPartition
    turn: int
    outcome: PartOutcome
    body: Body
    lost: RecordsLost | None = None
    begin: int = 0


def _no_records(partition: TopicPartition) -> pa.Table:
    raise AssertionError(f"a part without records was opened for {partition}")


NO_BODY = Body(0, _no_records)
