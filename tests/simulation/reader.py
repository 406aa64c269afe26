"""A reader of the simulation: follows every partition through the archive and the log, directly in the bucket."""

from __future__ import annotations

from tests.simulation.batches import Placed, placed_in
from tests.simulation.cold import ColdReader
from tests.simulation.truth import SHARD, Truth

from tidelog.storage.errors import NotFound, Unavailable
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.wal.floor import Floor
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_entry import WalCodec

PAUSE_S_MAX = 0.4


class Reader:
    """Reads each record once, in order, and reports it to `truth`."""

    def __init__(self, store: ObjectStore, runtime: Runtime, codec: WalCodec, truth: Truth) -> None:
        self.positions: dict[int, int] = {}
        log = ShardLog(store, SHARD, runtime)
        self._wal = Wal(store, SHARD, codec, log)
        self._cold = ColdReader(store, log)
        self._runtime = runtime
        self._truth = truth

    async def run(self) -> None:
        """Follow without end."""
        while True:
            await self._runtime.clock.sleep(self._runtime.entropy.uniform(0, PAUSE_S_MAX))
            try:
                await self.catch_up()
            except (NotFound, Unavailable):
                continue

    async def catch_up(self) -> None:
        """Read new records: below the cold end from the archive, from it on from the log."""
        cold = await self._cold.newest()
        hot: list[Placed] = []
        async for info in self._wal.entries(cold.floor.number):
            hot.extend(cold.beyond(placed_in((await self._wal.read(info.number)).header)))
        if not await self.still_in_log(cold.floor):
            return
        for placed in (*cold.batches, *hot):
            self._take(placed)

    async def still_in_log(self, floor: Floor) -> bool:
        """Whether no entry read since `floor` can have been deleted and created again."""
        return (await self._wal.floor()).number == floor.number

    def _take(self, placed: Placed) -> None:
        position = self.positions.get(placed.batch.partition, 0)
        for offset in range(position, placed.next_offset):
            self._truth.was_read(placed.batch.partition, offset, placed.batch)
        self.positions[placed.batch.partition] = max(position, placed.next_offset)
