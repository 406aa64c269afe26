"""The queues of a producer, one lane per partition.

Each lane has at most one request under way, so that its records arrive in order and their sequences have no gap
(inv. 7). Several lanes are under way at once. `Lanes` does no I/O: the producer holds its lock and sends the parcels.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers: TypeAlias = "range | npt.NDArray[np.int64]"
"""The numbers of some records: how many records their producer was given before each."""


@dataclass(frozen=True)
class Share:
    """The records of one batch for one partition, with the columns of `records.DRAFT_SCHEMA` that hold a value."""

    partition: int
    records: pa.Table
    bytes: int
    numbers: Numbers


@dataclass(frozen=True)
class Parcel:
    """The next request of a lane. The first of `records` has the sequence `first_sequence`; `numbers` are in pieces."""

    partition: int
    records: pa.Table
    first_sequence: int
    bytes: int
    numbers: Sequence[Numbers]

    @property
    def first_number(self) -> int:
        return self.number_of(0)

    def number_of(self, row: int) -> int:
        """The number of the record in this row."""
        for numbers in self.numbers:
            if row < len(numbers):
                return int(numbers[row])
            row -= len(numbers)
        raise IndexError(row)


@dataclass
class _Lane:
    waiting: deque[Share] = field(default_factory=deque)
    next_sequence: int = 0
    under_way: Parcel | None = None


class Lanes:
    """Queues by partition. Parcels are taken from them in turn."""

    def __init__(self, *, request_bytes: int, request_records: int) -> None:
        self._request_bytes = request_bytes
        self._request_records = request_records
        self._lanes: dict[int, _Lane] = {}
        self._ready: deque[int] = deque()
        self._lost: list[int] = []
        self.bytes = 0

    @property
    def empty(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return self.bytes == 0 and not self.open_records

    @property
    def open_records(self) -> int:
        """How many records wait or are under way."""
        waiting = sum(share.records.num_rows for lane in self._lanes.values() for share in lane.waiting)
        return waiting + sum(lane.under_way.records.num_rows for lane in self._lanes.values() if lane.under_way)

    @property
    def first_open(self) -> int | None:
        """The lowest number of a record that waits, is under way or was lost; None if there is none."""
        lanes = self._lanes.values()
        waiting = [int(lane.waiting[0].numbers[0]) for lane in lanes if lane.waiting]
        under_way = [lane.under_way.first_number for lane in lanes if lane.under_way]
        return min(waiting + under_way + self._lost, default=None)

    def begin_at(self, sequences: Mapping[int, int]) -> None:
        """Set the next sequence of each partition. Call it before the first `put`."""
        self._lanes.update({partition: _Lane(next_sequence=first) for partition, first in sequences.items()})

    def put(self, share: Share) -> None:
        """Queue a share behind those of its partition."""
        lane = self._lanes.setdefault(share.partition, _Lane())
        if not lane.waiting and not lane.under_way:
            self._ready.append(share.partition)
        lane.waiting.append(share)
        self.bytes += share.bytes

    def take(self) -> Parcel | None:
        """The next parcel, which is now under way; None if no lane has one."""
        if not self._ready:
            return None
        partition = self._ready.popleft()
        lane = self._lanes[partition]
        shares = self._fitting(lane.waiting)
        records = pa.concat_tables([share.records for share in shares], promote_options="default")
        size, numbers = sum(share.bytes for share in shares), tuple(share.numbers for share in shares)
        parcel = Parcel(partition, records, lane.next_sequence, size, numbers)
        lane.next_sequence += records.num_rows
        lane.under_way = parcel
        return parcel

    def done(self, parcel: Parcel, refused: int = 0) -> None:
        """Free an answered parcel, so that its lane can send the next one. `refused` of its records are not in the log,
        so their sequences are assigned again (inv. 7)."""
        lane = self._lanes[parcel.partition]
        lane.under_way = None
        lane.next_sequence -= refused
        self.bytes -= parcel.bytes
        if lane.waiting:
            self._ready.append(parcel.partition)

    def lose(self, number: int) -> None:
        """Note that the record of that number and those behind it will not be answered."""
        self._lost.append(number)

    def drop_waiting(self) -> int:
        """Drop everything that waits and return how many records it had."""
        dropped = 0
        self._lost += [int(lane.waiting[0].numbers[0]) for lane in self._lanes.values() if lane.waiting]
        for lane in self._lanes.values():
            dropped += sum(share.records.num_rows for share in lane.waiting)
            self.bytes -= sum(share.bytes for share in lane.waiting)
            lane.waiting.clear()
        self._ready.clear()
        return dropped

    def _fitting(self, waiting: deque[Share]) -> list[Share]:
        shares = [waiting.popleft()]
        size, rows = shares[0].bytes, shares[0].records.num_rows
        while waiting:
            size += waiting[0].bytes
            rows += waiting[0].records.num_rows
            if size > self._request_bytes or rows > self._request_records:
                break
            shares.append(waiting.popleft())
        return shares
