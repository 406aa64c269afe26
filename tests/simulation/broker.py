"""A broker of the simulation: claims the log, replays it, appends the producers' batches, acknowledges.

It is the simplest form of a real leader. Offsets and producers' sequences come only from the manifest and the log, so a
batch that was sent again is appended once (inv. 7), and offsets stay dense (inv. 4).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.batches import PARTITIONS, TOPICS, Batch, Placed, placed_in, topic_id_of
from tests.simulation.lease_server import KnownLease
from tests.simulation.parquet_rows import parquet_rows
from tests.simulation.violation import SHARD

from tidelog.storage.errors import Conflict, Fenced, Invalid, NotFound, Unavailable
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.partition_view import view_of
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_values import ColdState
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_entry import PreparedEntry, WalHeader
from tidelog.storage.wal.wal_writer import WalWriter

if TYPE_CHECKING:
    from tests.simulation.world import World

COMMIT_TIMEOUT_S = 0.15
GIVE_UP_AFTER = 4
IDLE_S = 0.05
ENDS_TOLD_EVERY = 3
"""The number of idle turns of a leader."""


@dataclass
class View:
    """A leader's knowledge of the log: the next offset of each partition, and the last sequence of each producer."""

    offsets: dict[int, int] = field(default_factory=dict)
    sequences: dict[tuple[int, str], int] = field(default_factory=dict)

    def add(self, placed: Placed) -> None:
        """Record that `placed` is in the log."""
        batch = placed.batch
        self.offsets[batch.partition] = placed.next_offset
        self.sequences[batch.partition, batch.producer] = batch.sequence

    def add_archived(self, partition: int, state: ColdState) -> None:
        """Record what the manifest says of a partition."""
        self.offsets[partition] = state.cold_end
        for known in state.producers:
            self.sequences[partition, known.producer_id] = known.first_sequence

    def has(self, batch: Batch) -> bool:
        """Whether `batch` is in the log."""
        return self.sequences.get((batch.partition, batch.producer), -1) >= batch.sequence

    def place(self, batch: Batch, after: tuple[Placed, ...] = ()) -> Placed:
        """The place of `batch`, after those of `after` that are in flight."""
        base = self.offsets.get(batch.partition, 0)
        ends = [placed.next_offset for placed in after if placed.batch.partition == batch.partition]
        return Placed(batch, max(ends, default=base))


async def replay(wal: Wal, log: ShardLog, end_seq: int) -> View | None:
    """The state of the log before entry `end_seq`; None if it was truncated during the read and must be read again.

    Everything below the floor of a manifest is in its segments. It reads the floor again at the end, because a stalled
    writer may have created an entry again that the floor has passed."""
    manifest = await log.with_lists(await log.newest(), TOPICS)
    view = View()
    for partition in range(PARTITIONS):
        place = TopicPartition(topic_id_of(partition), partition)
        view.add_archived(partition, view_of(manifest, place).state)
    for seq in range(manifest.floor.number, end_seq):
        for placed in placed_in(await wal.header(seq)):
            if placed.base_offset >= view.offsets[placed.batch.partition]:
                view.add(placed)
    return view if (await wal.floor()).number == manifest.floor.number else None


class Broker:
    """One process that tries to lead. With a lease it claims only while it holds the lease."""

    def __init__(self, world: World, name: str, store: ObjectStore, runtime: Runtime, lease: KnownLease | None) -> None:
        self._world = world
        self._name = name
        self._store = store
        self._runtime = runtime
        self._lease = lease

    async def run(self) -> None:
        """Lead whenever possible, without end."""
        while True:
            await self._runtime.clock.sleep(self._runtime.entropy.uniform(0, IDLE_S))
            if self._lease is not None and not self._lease.fresh_term():
                continue
            if self._lease is None and not self._world.wants_leader(self._name):
                continue
            try:
                await self._lead()
            except (Fenced, Unavailable, NotFound, Conflict):
                self._world.released(self._name)

    async def _lead(self) -> None:
        log = self._world.new_shard_log(self._store, self._runtime)
        wal = Wal(self._store, SHARD, self._world.codec, log)
        writer = self._world.new_writer(wal, self._runtime, self._name)
        await writer.claim(timeout_s=2 * COMMIT_TIMEOUT_S)
        view = None
        while view is None:
            view = await replay(wal, log, writer.next_seq)
        async with self._archiving(writer):
            await self._serve(wal, writer, view)

    @asynccontextmanager
    async def _archiving(self, writer: WalWriter) -> AsyncGenerator[None]:
        """The leader looks after its archive, too, in some worlds. Its loops are cancelled once it does not lead."""
        loops: list[asyncio.Task[None]] = []
        if self._world.weather.leader_archives:
            worker = self._world.new_worker(self._store, self._runtime, lambda: writer.next_seq)
            loops = [asyncio.create_task(loop) for loop in worker.loops()]
        try:
            yield
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)

    async def _serve(self, wal: Wal, writer: WalWriter, view: View) -> None:
        idle = 0
        while True:
            batch = self._world.take(self._name)
            if batch is None:
                await self._runtime.clock.sleep(IDLE_S)
                idle += 1
                if idle % ENDS_TOLD_EVERY == 0:
                    await self._tell_ends(writer, view)
            elif view.has(batch):
                self._world.acknowledge(batch, None)
            else:
                await self._append(wal, writer, view, batch)

    async def _tell_ends(self, writer: WalWriter, view: View) -> None:
        """Answer a read at the end, like a leader without a lease. A leader that was replaced steps down."""
        acknowledged = self._world.truth.acknowledged_ends()
        if await writer.is_overtaken():
            raise Fenced("another leads")
        self._world.truth.ends_told(view.offsets, acknowledged)

    async def _append(self, wal: Wal, writer: WalWriter, view: View, batch: Batch) -> None:
        """Commit `batch`, and sometimes another one that was encoded while it was in flight."""
        first = view.place(batch)
        entries = [(self._encode(wal, writer, first, None), first)]
        other = self._world.take(self._name) if self._runtime.entropy.uniform(0, 1) < 0.25 else None
        if other is not None and not view.has(other):
            second = view.place(other, (first,))
            entries.append((self._encode(wal, writer, second, entries[0][0].header), second))
        for entry, placed in entries:
            if not await self._commit(writer, entry):
                return
            view.add(placed)
            self._world.acknowledge(placed.batch, entry.header)

    def _encode(self, wal: Wal, writer: WalWriter, placed: Placed, after: WalHeader | None) -> PreparedEntry:
        header = writer.next_header(spans=(placed.span(),), producers=(placed.mark(),), after=after)
        return PreparedEntry(header, wal.codec.encode(header, parquet_rows(placed)))

    async def _commit(self, writer: WalWriter, entry: PreparedEntry) -> bool:
        """Whether `entry` is committed. False only if the writer is *sure* that it is not and never will be."""
        for attempt in range(GIVE_UP_AFTER):
            try:
                await writer.commit(entry, timeout_s=COMMIT_TIMEOUT_S)
            except Unavailable:
                if attempt == GIVE_UP_AFTER - 1:
                    raise
            except Invalid:
                self._world.refuse(entry.header)
                return False
            else:
                return True
        return False
