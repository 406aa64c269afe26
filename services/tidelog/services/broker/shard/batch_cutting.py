"""Cuts the batches of a shard and has them encoded, ahead of the commit loop.

`seconds_to_cut` decides, as a pure function:

- An idle shard cuts immediately, so the first record after a pause does not wait.
- A busy shard starts its PUTs at least `interval_s` apart, which bounds their cost.
- A batch that has reached `batch_bytes_max` is cut immediately, even during a PUT, so that it is encoded when the PUT
  ends.
- Where PUTs are free (`interval_s` 0, a local disk), a quarter of that size suffices beside a single batch in flight:
  encoding takes as long as the PUT under way, and two processors share the work. With two in flight the disk is the
  slower part, and the next batch fills up: fewer entries cost less CPU here and in the archiver, and fewer syncs.
- Otherwise the batch fills during a PUT, so batches grow with load.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from tidelog.services.broker.shard.append_buffer import Append, AppendBuffer, Batch
from tidelog.services.broker.shard.batch_entry import EncodedBatch, encoded_batch
from tidelog.services.broker.shard.partition_state import Outcome
from tidelog.storage.runtime import Clock
from tidelog.storage.wal.wal_entry import WalCodec, WalHeader
from tidelog.storage.wal.wal_writer import WalWriter

EARLY_PART = 4
"""Where PUTs are free, this fraction of a full batch is cut beside a single batch in flight."""

BATCHES_IN_FLIGHT_MAX = 3
"""One is written and two are encoded ahead of it: encoding takes longer than a PUT to a local disk."""

THREAD_BYTES_MIN = 64 * 1024
"""Smaller batches are encoded on the event loop, in half a millisecond."""


@dataclass(frozen=True)
class FlushPolicy:
    """`interval_s` between the starts of two PUTs of a busy shard; a batch is cut at `batch_bytes_max`."""

    interval_s: float
    batch_bytes_max: int

    def cut_bytes(self, in_flight: int) -> int:
        """The size at which a batch is cut beside `in_flight` others."""
        early = not self.interval_s and in_flight < 2
        return max(1, self.batch_bytes_max // EARLY_PART) if early else self.batch_bytes_max


@dataclass(frozen=True)
class ShardLoad:
    """Input of the decision. `last_cut_s`: when the previous batch was cut, None if there was none; `in_flight`: how
    many batches are cut and not committed yet; `hurry`: the broker is stopping."""

    waiting_bytes: int
    last_cut_s: float | None
    in_flight: int
    hurry: bool = False


def seconds_to_cut(policy: FlushPolicy, load: ShardLoad, now_s: float) -> float | None:
    """Seconds until the next batch is to be cut: 0 for now, None for "not before the load changes"."""
    if not load.waiting_bytes:
        return None
    if load.waiting_bytes >= policy.cut_bytes(load.in_flight):
        return 0.0
    if load.in_flight:
        return None
    if load.hurry or load.last_cut_s is None:
        return 0.0
    return max(0.0, load.last_cut_s + policy.interval_s - now_s)


@dataclass(frozen=True, slots=True)
class _Cut:
    batch: Batch
    encoded: asyncio.Future[EncodedBatch]


class BatchCutter:
    """Owns the batches of a shard from `add` until `committed` or `take_all`."""

    def __init__(
        self, writer: WalWriter, codec: WalCodec, policy: FlushPolicy, clock: Clock, executor: Executor
    ) -> None:
        self._writer = writer
        self._codec = codec
        self._policy = policy
        self._clock = clock
        self._executor = executor
        self._buffer = AppendBuffer(policy.batch_bytes_max)
        self._in_flight: list[Batch] = []
        self._cuts: asyncio.Queue[_Cut] = asyncio.Queue()
        self._last_header: WalHeader | None = None
        self._last_cut_s: float | None = None
        self._changed = asyncio.Event()
        self._hurry = False

    @property
    def held_bytes(self) -> int:
        return self._buffer.held_bytes + sum(batch.held_bytes for batch in self._in_flight)

    @property
    def idle(self) -> bool:
        """Whether no batch is buffered or in flight."""
        return not self._in_flight and not self._buffer.next_bytes

    def add(self, append: Append) -> Outcome:
        """Buffer `append`, whose room is reserved and whose offsets are assigned. Returns the outcome of its batch."""
        was_empty = self._buffer.next_bytes == 0
        outcome = self._buffer.add(append)
        if was_empty or self._buffer.next_bytes >= self._policy.cut_bytes(len(self._in_flight)):
            self._changed.set()
        return outcome

    def hurry(self) -> None:
        """From now on cut without waiting for the interval."""
        self._hurry = True
        self._changed.set()

    async def run(self) -> None:
        while True:
            await self._time_to_cut()
            batch = self._buffer.take()
            self._in_flight.append(batch)
            self._last_cut_s = self._clock.monotonic()
            self._cuts.put_nowait(_Cut(batch, self._encode(batch)))

    async def next_encoded(self) -> tuple[Batch, EncodedBatch]:
        """The next batch in the order in which they were cut. One caller at a time."""
        cut = await self._cuts.get()
        return cut.batch, await cut.encoded

    def committed(self, batch: Batch) -> None:
        self._in_flight.remove(batch)
        self._changed.set()

    def take_all(self) -> Sequence[Batch]:
        """Remove every batch that is not committed, the oldest first."""
        batches = (*self._in_flight, *self._buffer.take_all())
        self._in_flight.clear()
        return batches

    def _encode(self, batch: Batch) -> asyncio.Future[EncodedBatch]:
        """In a thread, unless the batch is so small that switching to one takes longer."""
        after = self._last_header if len(self._in_flight) > 1 else None
        self._last_header = self._writer.next_header(after=after)
        loop = asyncio.get_running_loop()
        work = partial(encoded_batch, self._codec, self._last_header, batch.appends)
        if batch.held_bytes >= THREAD_BYTES_MIN:
            return loop.run_in_executor(self._executor, work)
        encoded: asyncio.Future[EncodedBatch] = loop.create_future()
        encoded.set_result(work())
        return encoded

    async def _time_to_cut(self) -> None:
        while True:
            self._changed.clear()
            delay_s = self._seconds_to_cut()
            if delay_s == 0:
                return
            await self._changed_within(delay_s)

    def _seconds_to_cut(self) -> float | None:
        if len(self._in_flight) >= BATCHES_IN_FLIGHT_MAX:
            return None
        load = ShardLoad(self._buffer.next_bytes, self._last_cut_s, len(self._in_flight), self._hurry)
        return seconds_to_cut(self._policy, load, self._clock.monotonic())

    async def _changed_within(self, delay_s: float | None) -> None:
        if delay_s is None:
            await self._changed.wait()
            return
        pause = asyncio.ensure_future(self._clock.sleep(delay_s))
        change = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((pause, change), return_when=asyncio.FIRST_COMPLETED)
        finally:
            pause.cancel()
            change.cancel()
