"""The leader of one shard: it claims the WAL, commits batches and publishes them.

    append -> BatchCutter: buffer, cut, encode -> WalWriter.commit -> publish to readers -> answer producers

Two loops run side by side. The first cuts batches and has them encoded (`BatchCutter`). The second commits entries in
the order in which they were cut, one PUT in flight.

A fenced leader steps down and does not claim the shard again: if two brokers kept taking one bucket from each other,
neither would serve. A leader that stops for another cause is replaced by a new object with a new epoch (`ShardSet`). In
both cases the waiting producers get an error that says that the outcome is unknown; a retry with the same sequence
appends once (inv. 7). If the store refuses the credentials, the leader keeps its shard and retries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from tidelog.services.broker.shard.append_buffer import Append, Batch, BufferBudget, LossWindow
from tidelog.services.broker.shard.batch_cutting import BatchCutter, FlushPolicy
from tidelog.services.broker.shard.batch_entry import EncodedBatch
from tidelog.services.broker.shard.hot_tail import EntryName, HotTail
from tidelog.services.broker.shard.idempotence import ProducerMemory
from tidelog.services.broker.shard.index_keeper import IndexKeeper
from tidelog.services.broker.shard.leadership_proof import LeadershipProof
from tidelog.services.broker.shard.log_opening import LogOpening
from tidelog.services.broker.shard.partition_state import Outcome, ShardFailure, hot_span
from tidelog.services.broker.shard.producer_activity import ProducerActivity
from tidelog.services.broker.shard.shard_partitions import ShardPartitions
from tidelog.services.broker.shard.wal_extent import WalExtent
from tidelog.services.broker.telemetry.measurements import Measurements
from tidelog.storage.errors import Denied, Fenced, TidelogError, Unavailable
from tidelog.storage.manifests.shard_manifest import ShardManifest
from tidelog.storage.runtime import Runtime
from tidelog.storage.wal.commit_retries import CommitRetries
from tidelog.storage.wal.wal_index import IndexedEntry, WalIndex
from tidelog.storage.wal.wal_writer import WalWriter

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SharedResources:
    """What all shards of a broker share."""

    runtime: Runtime
    policy: FlushPolicy
    budget: BufferBudget
    hot_tail: HotTail
    measurements: Measurements
    producers: ProducerActivity
    executor: Executor
    producer_memory: ProducerMemory


class ShardLeader:
    """Leads `shard` from `open` until `close`, or until it is fenced."""

    def __init__(
        self, writer: WalWriter, partitions: ShardPartitions, index: WalIndex, resources: SharedResources
    ) -> None:
        clock = resources.runtime.clock
        self.shard = partitions.wal.shard
        self.partitions = partitions
        self.proof = LeadershipProof(writer.is_overtaken, clock)
        self.loss_window = LossWindow(clock)
        self.extent = WalExtent()
        self._index = index
        self._keeper = IndexKeeper(index, resources.executor)
        self._wal = partitions.wal
        self._writer = writer
        self._resources = resources
        self._cutter = BatchCutter(writer, self._wal.codec, resources.policy, clock, resources.executor)
        self._settled = asyncio.Event()
        self._settled.set()
        self._failure: ShardFailure | None = None
        self._ended = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        partitions.on_overtaken = self.overtaken

    async def open(self, epoch: int | None = None, *, timeout_s: float | None = None) -> None:
        """Begin an epoch (`epoch` from a coordinator, otherwise the next one), read the log, start the loops. Raises
        `Unavailable`, `Corrupt`, and `Fenced` if the log contains `epoch` or a later one."""
        opening = LogOpening(self._wal, self._index)
        await self._writer.claim(epoch=epoch, known_end=await opening.known_end(), timeout_s=timeout_s)
        log = await opening.read(self._writer.next_seq)
        self.extent.adopt(log.floor, log.entries)
        self.partitions.adopt(log.entries, log.holes)
        self._keeper.adopt(log.entries)
        self._loops = [asyncio.create_task(self._guarded(loop)) for loop in (self._cutter.run, self._commit_entries)]

    async def drain(self) -> None:
        """Commit what is buffered without further delay; return when it is settled."""
        self._cutter.hurry()
        await self._settled.wait()

    async def close(self, *, fenced: bool = False) -> None:
        """Stop immediately. Uncommitted records may or may not be in the log. `fenced`: because another broker
        leads."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await self._keeper.close()
        reason = "another broker leads it" if fenced else "this broker stopped leading it"
        self._step_down(ShardFailure(f"shard {self.shard}: {reason}", Fenced if fenced else Unavailable))

    def still_down(self, error: Exception) -> None:
        """The shard could not be claimed again; requests fail with `error` from now on."""
        kind = Denied if isinstance(error, Denied) else Unavailable
        self._failure = ShardFailure(f"shard {self.shard} cannot be led; the broker retries: {error}", kind)

    def overtaken(self, reason: str) -> None:
        """It is proved that another broker leads the shard: stop immediately, as if fenced."""
        if self._failure:
            return
        for loop in self._loops:
            loop.cancel()
        self._fenced(f"another broker leads shard {self.shard}: {reason}")

    async def ended(self) -> None:
        await self._ended.wait()

    @property
    def down(self) -> ShardFailure | None:
        """Why this leader has stepped down, None while it leads."""
        return self._failure

    @property
    def measurements(self) -> Measurements:
        return self._resources.measurements

    @property
    def retries(self) -> CommitRetries:
        return self._writer.retries

    @property
    def epoch(self) -> int:
        return self._writer.epoch

    @property
    def next_seq(self) -> int:
        return self._writer.next_seq

    @property
    def buffered_bytes(self) -> int:
        return self._cutter.held_bytes

    def check_leading(self) -> None:
        """Raises why this shard cannot be written or read here."""
        if self._failure:
            raise self._failure.error()

    def append(self, append: Append) -> Outcome:
        """Accept records whose room is reserved and whose offsets are assigned. Returns the outcome of their batch."""
        assert not self._failure
        self._resources.producers.appended()
        outcome = self._cutter.add(append)
        self.loss_window.add(outcome)
        self._settled.clear()
        return outcome

    async def _commit_entries(self) -> None:
        while True:
            batch, encoded = await self._cutter.next_encoded()
            probe = self.proof.begin()
            await self._writer.commit(encoded.prepared)
            self.proof.succeeded(probe)
            self._publish(batch, encoded)

    def _publish(self, batch: Batch, encoded: EncodedBatch) -> None:
        """The entry is in the log: readers first, then producers (inv. 1)."""
        header, draft = encoded.prepared.header, encoded.draft
        name = EntryName(self.shard, header.seq)
        size_bytes = memoryview(encoded.prepared.body).nbytes
        self.extent.add(header, size_bytes)
        self._keeper.committed(IndexedEntry(header, size_bytes))
        self._resources.hot_tail.put(name, draft.records, draft.held_bytes)
        self._resources.hot_tail.put_sent(name, draft.sent)
        states = {append.partition.topic_partition: append.partition for append in batch.appends}
        for drafted in draft.spans:
            state = states[drafted.span.topic_partition]
            state.commit(hot_span(name, drafted.span, drafted.timestamp_ms_max))
            state.wake()
        counted = ((append.partition.topic, append.count, append.payload_bytes) for append in batch.appends)
        self._resources.measurements.committed(counted, size_bytes)
        self._cutter.committed(batch)
        self._settle(batch, None)
        if self._cutter.idle:
            self._settled.set()

    def _settle(self, batch: Batch, failure: ShardFailure | None) -> None:
        self._resources.budget.release(batch.reserved_bytes)
        self.loss_window.settle(batch.outcome)
        batch.outcome.set_result(failure)

    async def _guarded(self, loop: Callable[[], Awaitable[None]]) -> None:
        """Run `loop`. If it fails, the leader steps down, so that no request waits for a loop that has ended."""
        try:
            await loop()
        except Fenced as error:
            self._fenced(str(error))
        except TidelogError as error:
            _log.error("shard %d stops: %s", self.shard, error)
            self._step_down(ShardFailure(f"shard {self.shard} stopped: {error}"))
        except Exception as error:
            _log.exception("shard %d stops because of a defect", self.shard)
            self._step_down(ShardFailure(f"shard {self.shard} stopped because of a defect: {error!r}"))

    def _fenced(self, reason: str) -> None:
        _log.error("shard %d steps down: %s", self.shard, reason)
        self._step_down(ShardFailure(reason, Fenced))

    def _step_down(self, failure: ShardFailure) -> None:
        self._failure = self._failure or failure
        for batch in self._cutter.take_all():
            self._settle(batch, self._failure)
        self._settled.set()
        self._ended.set()
        self.partitions.wake_all()

    def keep_headers(self) -> None:
        """Entries were lost: write their headers to the index now, so that the next leader knows what they held."""
        self._keeper.flush()

    async def archived(self, manifest: ShardManifest, archived_to: int) -> None:
        """Switch to a version of the manifest, and drop what it makes unnecessary (`WalExtent.cut`)."""
        await self.partitions.apply(manifest)
        self.extent.cut(manifest.floor.number, archived_to)
        self._keeper.floor_moved(self.extent.floor)
