"""Records taken and not yet committed: batches that fill while the one before is being written, bounded in bytes.

The bound is one for all shards (`BufferBudget`) and covers a batch until it is committed or has failed. A request
reserves for all its partitions at once or takes nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tidelog.services.broker.shard.failure import Failure
from tidelog.services.broker.shard.partition_state import PartitionState
from tidelog.storage.errors import Overloaded, TooLarge
from tidelog.storage.wal_entry import ProducerMark

APPEND_OVERHEAD_BYTES = 4 * 1024
"""What an append costs beside its records: Arrow's and Python's objects."""
RETRY_AFTER_S = 1.0


Outcome = asyncio.Future[Failure | None]
"""How a batch ended: None once it is committed."""


class BufferBudget:
    """How many bytes may wait for their commit in this process."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.used_bytes = 0

    def reserve(self, held_bytes: int) -> None:
        """Raises `Overloaded` if there is no room now, `TooLarge` if there never can be."""
        if held_bytes > self._bytes_max:
            raise TooLarge(
                f"the request takes {held_bytes:,} bytes of memory; buffer.max.bytes is {self._bytes_max:,}",
                limit_name="buffer.max.bytes",
                limit_bytes=self._bytes_max,
            )
        if self.used_bytes + held_bytes > self._bytes_max:
            raise Overloaded(
                f"{self.used_bytes:,} of buffer.max.bytes ({self._bytes_max:,}) wait for the store; nothing was taken, "
                "send it again later",
                retry_after_s=RETRY_AFTER_S,
            )
        self.used_bytes += held_bytes

    def release(self, held_bytes: int) -> None:
        self.used_bytes -= held_bytes
        assert self.used_bytes >= 0


@dataclass(frozen=True, slots=True)
class Append:
    """One request's records for one partition, with the offsets from `base_offset` on."""

    partition: PartitionState
    records: pa.Table
    base_offset: int
    held_bytes: int
    payload_bytes: int
    timestamp_ms_max: int
    mark: ProducerMark | None = None

    @property
    def count(self) -> int:
        return self.records.num_rows


@dataclass(slots=True)
class Batch:
    """What goes into one WAL entry."""

    outcome: Outcome
    appends: list[Append] = field(default_factory=list)
    held_bytes: int = 0


class AppendBuffer:
    """The batches of one shard that wait to be written; only the last of them still fills.

    An append is never divided: a batch is closed before it would grow over `batch_bytes_max`, unless it is empty.
    """

    def __init__(self, batch_bytes_max: int) -> None:
        self._batch_bytes_max = batch_bytes_max
        self._batches: deque[Batch] = deque()
        self.held_bytes = 0

    @property
    def next_bytes(self) -> int:
        """The size of the batch that is next to be written; at least `batch_bytes_max` once it is closed."""
        if not self._batches:
            return 0
        first = self._batches[0].held_bytes
        return first if len(self._batches) == 1 else max(first, self._batch_bytes_max)

    def add(self, append: Append) -> Outcome:
        """Put `append` behind all others. Its room must be reserved."""
        batch = self._filling(append.held_bytes)
        batch.appends.append(append)
        batch.held_bytes += append.held_bytes
        self.held_bytes += append.held_bytes
        return batch.outcome

    def take(self) -> Batch:
        """The oldest batch, which fills no more."""
        batch = self._batches.popleft()
        self.held_bytes -= batch.held_bytes
        return batch

    def take_all(self) -> Sequence[Batch]:
        batches = tuple(self._batches)
        self._batches.clear()
        self.held_bytes = 0
        return batches

    def _filling(self, held_bytes: int) -> Batch:
        if not self._batches or self._batches[-1].held_bytes + held_bytes > self._batch_bytes_max:
            self._batches.append(Batch(asyncio.get_running_loop().create_future()))
        return self._batches[-1]
