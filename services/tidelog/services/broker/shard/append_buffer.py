"""Records that were accepted and are not yet committed: batches that fill while an earlier one is written.

- `BufferBudget` bounds their bytes over all shards. A batch counts until it is committed or has failed. A request
  reserves room for all its partitions at once, or is refused as a whole.
- `LossWindow` bounds the time in which a crash would lose records that were acknowledged with ``acks=1``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tidelog.services.broker.shard.partition_state import Outcome, PartitionState
from tidelog.storage.errors import Overloaded, TooLarge
from tidelog.storage.runtime import Clock
from tidelog.storage.wal.wal_entry import ProducerMark

APPEND_OVERHEAD_BYTES = 4 * 1024
"""Memory of an append beside its records: objects of Arrow and Python."""
RETRY_AFTER_S = 1.0


class BufferBudget:
    """Bytes that may wait for their commit in this process."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.used_bytes = 0

    def reserve(self, held_bytes: int) -> None:
        """Raises `Overloaded` if there is no room now, `TooLarge` if there never can be."""
        if held_bytes > self._bytes_max:
            raise TooLarge(
                f"the request needs {held_bytes:,} bytes of memory; buffer.max.bytes is {self._bytes_max:,}",
                limit_name="buffer.max.bytes",
                limit_bytes=self._bytes_max,
            )
        if self.used_bytes + held_bytes > self._bytes_max:
            raise Overloaded(
                f"{self.used_bytes:,} of {self._bytes_max:,} bytes (buffer.max.bytes) wait for the store. Retry later; "
                "the request was not applied",
                retry_after_s=RETRY_AFTER_S,
            )
        self.used_bytes += held_bytes

    def release(self, held_bytes: int) -> None:
        self.used_bytes -= held_bytes
        assert self.used_bytes >= 0


@dataclass(frozen=True, slots=True)
class Append:
    """Records of one request for one partition, with offsets from `base_offset` on. `sent`: the same as the client sent
    them (`api.PartDraft`), whose bytes are not part of `held_bytes`."""

    partition: PartitionState
    records: pa.Table
    base_offset: int
    held_bytes: int
    payload_bytes: int
    timestamp_ms_max: int
    mark: ProducerMark | None = None
    sent: bytes | None = None

    @property
    def count(self) -> int:
        return self.records.num_rows


@dataclass(slots=True)
class Batch:
    """The appends of one WAL entry. `sent_bytes`: of their `sent`, which are not part of the entry."""

    outcome: Outcome
    appends: list[Append] = field(default_factory=list)
    held_bytes: int = 0
    sent_bytes: int = 0

    @property
    def reserved_bytes(self) -> int:
        """The room that its appends have reserved in the budget."""
        return self.held_bytes + self.sent_bytes


class AppendBuffer:
    """The batches of one shard that wait to be written. Only the last one still fills.

    An append is never split: a batch is closed before it would exceed `batch_bytes_max`, unless it is empty.
    """

    def __init__(self, batch_bytes_max: int) -> None:
        self._batch_bytes_max = batch_bytes_max
        self._batches: deque[Batch] = deque()
        self.held_bytes = 0

    @property
    def next_bytes(self) -> int:
        """The size of the oldest batch; at least `batch_bytes_max` once it is closed."""
        if not self._batches:
            return 0
        first = self._batches[0].held_bytes
        return first if len(self._batches) == 1 else max(first, self._batch_bytes_max)

    def add(self, append: Append) -> Outcome:
        """Add `append` to the last batch. Its room must be reserved."""
        batch = self._filling(append.held_bytes)
        batch.appends.append(append)
        batch.held_bytes += append.held_bytes
        batch.sent_bytes += len(append.sent or b"")
        self.held_bytes += append.held_bytes
        return batch.outcome

    def take(self) -> Batch:
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


class LossWindow:
    """The time from when a shard's oldest uncommitted batch was begun until now: a crash loses only what was accepted
    in it. Batches settle in the order in which they were begun.

    While the store answers, each commit closes the window. When the store stops answering, the window grows, and
    answers to ``acks=1`` wait once it is as wide as ``acks1.loss.max.ms``. Only records acknowledged by then are at
    risk.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_s: dict[Outcome, float] = {}

    def add(self, outcome: Outcome) -> None:
        """Records were put into the batch that ends with `outcome`."""
        if outcome not in self._began_s:
            self._began_s[outcome] = self._clock.monotonic()

    def settle(self, outcome: Outcome) -> None:
        self._began_s.pop(outcome, None)

    def is_wider(self, bound_s: float) -> bool:
        """Whether the oldest uncommitted batch was begun at least `bound_s` ago."""
        began_s = next(iter(self._began_s.values()), None)
        return began_s is not None and self._clock.monotonic() - began_s >= bound_s

    async def wait_until_narrower(self, bound_s: float, outcome: Outcome, timeout_s: float) -> None:
        """Return once the window is narrower than `bound_s`, `outcome` is known, or `timeout_s` has passed."""
        give_up_s = self._clock.monotonic() + timeout_s
        while not outcome.done() and self.is_wider(bound_s) and (left_s := give_up_s - self._clock.monotonic()) > 0:
            await asyncio.wait((next(iter(self._began_s)),), timeout=left_s)
