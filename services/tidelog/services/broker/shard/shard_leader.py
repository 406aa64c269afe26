"""The leader of one shard: it claims the WAL, commits batches and publishes them.

Two loops run side by side. The first cuts a batch when `flush_policy` says so and sends it to a thread to be encoded;
the second commits entries in the order they were cut, one PUT in flight. Up to two batches are encoded, side by side,
while a PUT is under way.

    append -> AppendBuffer -> cut -> encode in a thread -> WalWriter.commit -> publish to readers -> answer producers

A leader that is fenced steps down and stays down: another broker leads, and two that kept claiming one bucket from
each other would serve nobody. One that stops for another cause is replaced by a new leader object with a new epoch
(`shard_set`). In both cases the producers that wait are told that the outcome is unknown; a retry with the same
sequence appends once (inv. 7). A store that refuses the credentials is no such cause: the leader waits and tries again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from tidelog.services.broker.archive.wal_extent import WalExtent
from tidelog.services.broker.read.hot_tail import EntryName, HotTail
from tidelog.services.broker.shard.failure import Failure
from tidelog.services.broker.shard.index_keeper import IndexKeeper
from tidelog.services.broker.shard.leadership_proof import LeadershipProof
from tidelog.services.broker.shard.log_opening import LogOpening
from tidelog.services.broker.shard.partition_state import hot_span
from tidelog.services.broker.shard.shard_partitions import ShardPartitions
from tidelog.services.broker.telemetry.measurements import Measurements
from tidelog.services.broker.write.append_buffer import Append, AppendBuffer, Batch, BufferBudget, Outcome
from tidelog.services.broker.write.batch_entry import EncodedBatch, encoded_batch
from tidelog.services.broker.write.flush_policy import FlushPolicy, ShardLoad, seconds_to_cut
from tidelog.services.broker.write.loss_window import LossWindow
from tidelog.services.broker.write.producer_memory import ProducerMemory
from tidelog.storage.commit_retries import CommitRetries
from tidelog.storage.errors import Denied, Fenced, TidelogError, Unavailable
from tidelog.storage.manifests.manifest import Manifest
from tidelog.storage.runtime import Runtime
from tidelog.storage.wal_entry import WalHeader
from tidelog.storage.wal_index import IndexedEntry, WalIndex
from tidelog.storage.wal_writer import WalWriter

BATCHES_IN_FLIGHT_MAX = 3
"""One being written, two encoded ahead of it: encoding takes longer than a PUT to a local disk."""

THREAD_BYTES_MIN = 64 * 1024
"""Smaller batches are encoded on the event loop, in half a millisecond."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ShardMeans:
    """What all shards of a broker share."""

    runtime: Runtime
    policy: FlushPolicy
    budget: BufferBudget
    hot_tail: HotTail
    measurements: Measurements
    executor: Executor
    producer_memory: ProducerMemory


@dataclass(frozen=True, slots=True)
class _Cut:
    """A batch on its way through a thread."""

    batch: Batch
    encoded: asyncio.Future[EncodedBatch]


class ShardLeader:
    """Leads `shard` from `open` until `close`, or until it is fenced."""

    def __init__(self, writer: WalWriter, partitions: ShardPartitions, index: WalIndex, means: ShardMeans) -> None:
        self.shard = partitions.wal.shard
        self.partitions = partitions
        self.proof = LeadershipProof(writer.is_overtaken, means.runtime.clock)
        self.loss_window = LossWindow(means.runtime.clock)
        self.extent = WalExtent()
        self._index = index
        self._keeper = IndexKeeper(index, means.executor)
        self._wal = partitions.wal
        self._writer = writer
        self._means = means
        self._buffer = AppendBuffer(means.policy.batch_bytes_max)
        self._cuts: asyncio.Queue[_Cut] = asyncio.Queue()
        self._in_flight: list[Batch] = []
        self._last_header: WalHeader | None = None
        self._last_cut_s: float | None = None
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self._hurry = False
        self._failure: Failure | None = None
        self._ended = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        partitions.on_overtaken = self.overtaken

    # ---- life

    async def open(self, epoch: int | None = None, *, timeout_s: float | None = None) -> None:
        """Begin an epoch (`epoch`, which a coordinator gave out, or the next one), read what the log holds, start the
        loops. Raises `Unavailable`, `Corrupt`, and `Fenced` if the log has seen `epoch` or a later one."""
        opening = LogOpening(self._wal, self._index)
        await self._writer.claim(epoch=epoch, known_end=await opening.known_end(), timeout_s=timeout_s)
        log = await opening.read(self._writer.next_seq)
        self.extent.adopt(log.floor, log.entries)
        self.partitions.adopt(log.entries, log.holes)
        self._keeper.adopt(log.entries)
        self._loops = [asyncio.create_task(self._guarded(loop)) for loop in (self._cut_batches, self._commit_entries)]

    async def drain(self) -> None:
        """Write what waits without further delay and return when it is settled."""
        self._hurry = True
        self._changed.set()
        await self._settled.wait()

    async def close(self, *, fenced: bool = False) -> None:
        """Stop at once; what is not committed by now may or may not be in the log. `fenced`: since another leads."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await self._keeper.close()
        reason = "another broker leads it now" if fenced else "the broker let go of it"
        self._step_down(Failure(f"shard {self.shard}: {reason}", Fenced if fenced else Unavailable))

    def still_down(self, error: Exception) -> None:
        """It could not be led again, because of `error`: that is what requests are told from now on."""
        kind = Denied if isinstance(error, Denied) else Unavailable
        self._failure = Failure(f"shard {self.shard} cannot be led, the broker tries again: {error}", kind)

    def overtaken(self, reason: str) -> None:
        """It is proved that another broker leads the shard: stop at once, as if fenced."""
        if self._failure:
            return
        for loop in self._loops:
            loop.cancel()
        _log.error("shard %d steps down, another broker leads it: %s", self.shard, reason)
        self._step_down(Failure(f"shard {self.shard} is led by another broker now: {reason}", Fenced))

    async def ended(self) -> None:
        """Return once this shard is not led here any more."""
        await self._ended.wait()

    @property
    def down(self) -> Failure | None:
        """Why this shard is not led any more, None while it is."""
        return self._failure

    @property
    def retries(self) -> CommitRetries:
        """How the store stands to its commits."""
        return self._writer.retries

    @property
    def epoch(self) -> int:
        return self._writer.epoch

    @property
    def next_seq(self) -> int:
        return self._writer.next_seq

    @property
    def buffered_bytes(self) -> int:
        return self._buffer.held_bytes + sum(batch.held_bytes for batch in self._in_flight)

    # ---- taking

    def check_leading(self) -> None:
        """Raises why this shard cannot be written to or read from here."""
        if self._failure:
            raise self._failure.error()

    def append(self, append: Append) -> Outcome:
        """Take records whose room is reserved and whose offsets are assigned; the outcome comes with their batch."""
        assert not self._failure
        idle = self._buffer.next_bytes == 0
        outcome = self._buffer.add(append)
        self.loss_window.took(outcome)
        self._settled.clear()
        if idle or self._buffer.next_bytes >= self._means.policy.batch_bytes_early:
            self._changed.set()
        return outcome

    # ---- cutting and encoding

    async def _cut_batches(self) -> None:
        while True:
            await self._time_to_cut()
            batch = self._buffer.take()
            self._in_flight.append(batch)
            self._last_cut_s = self._means.runtime.clock.monotonic()
            self._cuts.put_nowait(_Cut(batch, self._encoding(batch)))

    def _encoding(self, batch: Batch) -> asyncio.Future[EncodedBatch]:
        """`batch` as an entry, made in a thread unless it is so small that going there takes longer."""
        after = self._last_header if len(self._in_flight) > 1 else None
        self._last_header = self._writer.next_header(after=after)
        loop = asyncio.get_running_loop()
        work = partial(encoded_batch, self._wal.codec, self._last_header, batch.appends)
        if batch.held_bytes >= THREAD_BYTES_MIN:
            return loop.run_in_executor(self._means.executor, work)
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
        load = ShardLoad(self._buffer.next_bytes, self._last_cut_s, bool(self._in_flight), self._hurry)
        return seconds_to_cut(self._means.policy, load, self._means.runtime.clock.monotonic())

    async def _changed_within(self, delay_s: float | None) -> None:
        if delay_s is None:
            await self._changed.wait()
            return
        pause = asyncio.ensure_future(self._means.runtime.clock.sleep(delay_s))
        change = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((pause, change), return_when=asyncio.FIRST_COMPLETED)
        finally:
            pause.cancel()
            change.cancel()

    # ---- committing

    async def _commit_entries(self) -> None:
        while True:
            cut = await self._cuts.get()
            encoded = await cut.encoded
            ask = self.proof.ask()
            await self._writer.commit(encoded.prepared)
            self.proof.proved(ask)
            self._publish(cut.batch, encoded)

    def _publish(self, batch: Batch, encoded: EncodedBatch) -> None:
        """The entry is in the log: readers first, then producers (inv. 1)."""
        seq, draft = encoded.prepared.header.seq, encoded.draft
        name = EntryName(self.shard, seq)
        size_bytes = memoryview(encoded.prepared.body).nbytes
        self.extent.add(encoded.prepared.header, size_bytes)
        self._keeper.committed(IndexedEntry(encoded.prepared.header, size_bytes))
        self._means.hot_tail.put(name, draft.records, draft.held_bytes)
        states = {append.partition.topic_partition: append.partition for append in batch.appends}
        for drafted in draft.spans:
            state = states[drafted.span.topic_partition]
            state.commit(hot_span(name, drafted.span, drafted.timestamp_ms_max))
            state.wake()
        self._means.measurements.committed(batch.appends, size_bytes)
        self._in_flight.remove(batch)
        self._settle(batch, None)
        if not self._in_flight and not self._buffer.next_bytes:
            self._settled.set()
        self._changed.set()

    def _settle(self, batch: Batch, failure: Failure | None) -> None:
        self._means.budget.release(batch.held_bytes)
        self.loss_window.settled(batch.outcome)
        batch.outcome.set_result(failure)

    # ---- stepping down

    async def _guarded(self, loop: Callable[[], Awaitable[None]]) -> None:
        """A loop that ends by an error takes the shard down with it: nobody waits for what will not come."""
        try:
            await loop()
        except Fenced as error:
            _log.error("shard %d steps down, another broker leads it: %s", self.shard, error)
            self._step_down(Failure(f"shard {self.shard} is led by another broker now: {error}", Fenced))
        except TidelogError as error:
            _log.error("shard %d stops: %s", self.shard, error)
            self._step_down(Failure(f"shard {self.shard} stopped: {error}"))
        except Exception as error:
            _log.exception("shard %d stops by a defect", self.shard)
            self._step_down(Failure(f"shard {self.shard} stopped by a defect: {error!r}"))

    def _step_down(self, failure: Failure) -> None:
        self._failure = self._failure or failure
        for batch in (*self._in_flight, *self._buffer.take_all()):
            self._settle(batch, self._failure)
        self._in_flight.clear()
        self._settled.set()
        self._ended.set()
        self.partitions.wake_all()

    def keep_headers(self) -> None:
        """Entries were lost: put their headers into the index now, so that the next leader knows what they held."""
        self._keeper.hasten()

    def archived(self, manifests: Sequence[Manifest], floor: int, archived_to: int) -> None:
        """Go over to newer manifests, which this broker's archiver appended, and a higher floor (`WalExtent.cut`)."""
        for manifest in manifests:
            self.partitions.made(manifest)
        self.partitions.archived(manifests)
        self.extent.cut(floor, archived_to)
        self._keeper.floor_moved(floor)
