"""A broker of the simulation: claims the log, replays it, appends the producers' batches, acknowledges.

It is the simplest form of a real leader. Offsets and producers' sequences come only from the manifest and the log, so a
batch that was sent again is appended once (inv. 7), and offsets stay dense (inv. 4).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.batches import Batch, Placed, placed_in
from tests.simulation.cold import ColdReader
from tests.simulation.lease_server import KnownLease
from tests.simulation.truth import SHARD

from tidelog.storage.errors import Fenced, Invalid, NotFound, Unavailable
from tidelog.storage.manifests.shard_log import ShardLog
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
    """A leader's knowledge of the log: the next offsets, and the batches in it."""

    offsets: dict[int, int] = field(default_factory=dict)
    batches: set[Batch] = field(default_factory=set)

    def add(self, placed: Placed) -> None:
        """Record that `placed` is in the log."""
        self.offsets[placed.batch.partition] = placed.next_offset
        self.batches.add(placed.batch)

    def place(self, batch: Batch, after: tuple[Placed, ...] = ()) -> Placed:
        """The place of `batch`, after those of `after` that are in flight."""
        base = self.offsets.get(batch.partition, 0)
        ends = [placed.next_offset for placed in after if placed.batch.partition == batch.partition]
        return Placed(batch, max(ends, default=base))


async def replay(wal: Wal, cold_reader: ColdReader, end_seq: int) -> View | None:
    """The state of the log before entry `end_seq`; None if it was truncated during the read and must be read again.

    Everything below the floor of a manifest is in its segments. It reads the floor again at the end, because a stalled
    writer may have created an entry again that the floor has passed."""
    cold = await cold_reader.newest()
    view = View()
    for placed in cold.batches:
        view.add(placed)
    for seq in range(cold.floor.number, end_seq):
        for placed in cold.beyond(placed_in(await wal.header(seq))):
            view.add(placed)
    return view if (await wal.floor()).number == cold.floor.number else None


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
            except (Fenced, Unavailable, NotFound):
                self._world.released(self._name)

    async def _lead(self) -> None:
        log = ShardLog(self._store, SHARD, self._runtime)
        wal = Wal(self._store, SHARD, self._world.codec, log)
        writer = self._world.new_writer(wal, self._runtime, self._name)
        await writer.claim(timeout_s=2 * COMMIT_TIMEOUT_S)
        view = None
        while view is None:
            view = await replay(wal, ColdReader(self._store, log), writer.next_seq)
        idle = 0
        while True:
            batch = self._world.take(self._name)
            if batch is None:
                await self._runtime.clock.sleep(IDLE_S)
                idle += 1
                if idle % ENDS_TOLD_EVERY == 0:
                    await self._tell_ends(writer, view)
            elif batch in view.batches:
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
        if other is not None and other not in view.batches:
            second = view.place(other, (first,))
            entries.append((self._encode(wal, writer, second, entries[0][0].header), second))
        for entry, placed in entries:
            if not await self._commit(writer, entry):
                return
            view.add(placed)
            self._world.acknowledge(placed.batch, entry.header)

    def _encode(self, wal: Wal, writer: WalWriter, placed: Placed, after: WalHeader | None) -> PreparedEntry:
        header = writer.next_header(spans=(placed.span(),), producers=(placed.mark(),), after=after)
        return PreparedEntry(header, wal.codec.encode(header, self._world.rows(placed)))

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
