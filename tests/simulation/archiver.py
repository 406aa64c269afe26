"""The truncator of the simulation: archives entries, raises the floor, deletes after the grace.

The order is fixed: manifest first, floor second, deletion last. Each step may be the last one before a crash. Two
archivers may run at once; one of their manifests wins.
"""

from __future__ import annotations

from tests.simulation.batches import Placed, placed_in
from tests.simulation.cold import Cold, cold_log, encode_cold, latest_cold
from tests.simulation.truth import SHARD

from tidelog.storage.errors import Conflict, NotFound, Unavailable
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.wal.wal import Floor, Wal
from tidelog.storage.wal.wal_entry import WalCodec, WalHeader

GRACE_S = 0.5
GRACE_MARGIN = 1.1
"""The grace is measured by a clock that may run fast."""
PAUSE_S_MAX = 0.25
ENTRIES_MAX = 6


class Archiver:
    """One process that archives and truncates."""

    def __init__(self, store: ObjectStore, runtime: Runtime, codec: WalCodec) -> None:
        self._wal = Wal(store, SHARD, codec)
        self._cold = cold_log(store)
        self._runtime = runtime
        self._seen: list[tuple[float, int]] = []

    async def run(self) -> None:
        """Archive and collect without end."""
        while True:
            await self._runtime.clock.sleep(self._runtime.entropy.uniform(0, PAUSE_S_MAX))
            try:
                await self.archive()
                await self.collect()
            except (Conflict, NotFound, Unavailable):
                continue

    async def archive(self) -> None:
        """One pass, from the floor on."""
        floor = await self._wal.floor()
        cold = await latest_cold(self._cold)
        headers = await self._headers(floor)
        if not headers or not await self.still_in_log(floor):
            return
        fresh = tuple(placed for header in headers for placed in cold.beyond(placed_in(header)))
        await self.publish(cold, fresh, headers[-1])

    async def publish(self, cold: Cold, fresh: tuple[Placed, ...], last: WalHeader) -> None:
        """Write the manifest, then the floor (inv. 5)."""
        if fresh:
            following = Cold(cold.version + 1, cold.batches + fresh)
            await self._cold.create(following.version, encode_cold(following))
        await self._wal.advance_floor(last.seq + 1, last.epoch)

    async def still_in_log(self, floor: Floor) -> bool:
        """Whether no entry read since `floor` can have been deleted and created again."""
        return (await self._wal.floor()).number == floor.number

    async def collect(self) -> None:
        """Delete the entries that the floor passed a grace ago (inv. 6)."""
        floor = await self._wal.floor()
        now_s = self._runtime.clock.monotonic()
        if not self._seen or self._seen[-1][1] < floor.number:
            self._seen.append((now_s, floor.number))
        ripe = [number for at_s, number in self._seen if self.is_ripe(now_s - at_s)]
        if ripe:
            await self._delete_below(max(ripe))

    def is_ripe(self, waited_s: float) -> bool:
        """Whether the grace is over, counted from when a floor was first seen."""
        return waited_s >= GRACE_S * GRACE_MARGIN

    async def _headers(self, floor: Floor) -> list[WalHeader]:
        headers: list[WalHeader] = []
        async for entry in self._wal.entries(floor.number):
            if entry.number != floor.number + len(headers) or len(headers) == ENTRIES_MAX:
                break
            headers.append(await self._wal.header(entry.number))
        return headers

    async def _delete_below(self, number: int) -> None:
        async for entry in self._wal.entries():
            if entry.number >= number:
                return
            await self._wal.delete(entry.number)
