"""The truncator of the simulation: archives entries and raises the floor by one version of the manifest, deletes after
the grace.

It is the product's protocol (`archive.archiver`) with the product's manifest, over segments that list batches: begin
from the version that is known, read entries from its floor on, upload, append the next version. Two archivers may run
at once; one of their versions wins.
"""

from __future__ import annotations

from tests.simulation.batches import Placed, placed_in
from tests.simulation.cold import ColdReader, archived, encode_segment, segment_of
from tests.simulation.truth import SHARD

from tidelog.storage.errors import Conflict, NotFound, Unavailable
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.wal.floor import Floor
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_entry import WalCodec, WalHeader

GRACE_S = 0.5
GRACE_MARGIN = 1.1
"""The grace is measured by a clock that may run fast."""
PAUSE_S_MAX = 0.25
ENTRIES_MAX = 6


class Archiver:
    """One process that archives and truncates."""

    def __init__(self, store: ObjectStore, runtime: Runtime, codec: WalCodec) -> None:
        self._store = store
        self._log = ShardLog(store, SHARD, runtime)
        self._wal = Wal(store, SHARD, codec, self._log)
        self._cold = ColdReader(store, self._log)
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
        manifest = self._log.known or await self._log.latest()
        cold = await self._cold.of(manifest)
        headers = await self._headers(manifest.floor)
        if not headers:
            await self._log.newest()  # another archiver may have moved the floor
            return
        fresh = tuple(placed for header in headers for placed in cold.beyond(placed_in(header)))
        await self.publish(manifest, fresh, headers[-1])

    async def publish(self, manifest: ShardManifest, fresh: tuple[Placed, ...], last: WalHeader) -> None:
        """Upload the segment, then append the version that lists it and moves the floor (inv. 5)."""
        await self.append(await self._change(manifest, fresh, Floor(last.seq + 1, last.epoch)), manifest)

    async def append(self, change: ManifestChange, began: ShardManifest) -> None:
        """Append the version after the one that the pass began from. Raises `Conflict` if there is another one."""
        await self._log.append(change, began)

    async def collect(self) -> None:
        """Delete the entries that the floor passed a grace ago (inv. 6)."""
        floor = await self._wal.floor()
        now_s = self._runtime.clock.monotonic()
        if not self._seen or self._seen[-1][1] < floor.number:
            self._seen.append((now_s, floor.number))
        ripe = [number for at_s, number in self._seen if self.is_ripe(now_s - at_s)]
        if ripe and max(ripe):
            await self._wal.delete_below(max(ripe))

    def is_ripe(self, waited_s: float) -> bool:
        """Whether the grace is over, counted from when a floor was first seen."""
        return waited_s >= GRACE_S * GRACE_MARGIN

    async def _change(self, manifest: ShardManifest, fresh: tuple[Placed, ...], floor: Floor | None) -> ManifestChange:
        if not fresh:
            return archived((), floor)
        segment = segment_of(SHARD, self._runtime.entropy.new_id(), manifest.version + 1, fresh)
        await self._store.create(segment.key, encode_segment(fresh))
        return archived((segment,), floor)

    async def _headers(self, floor: Floor) -> list[WalHeader]:
        headers: list[WalHeader] = []
        async for entry in self._wal.entries(floor.number):
            if entry.number != floor.number + len(headers) or len(headers) == ENTRIES_MAX:
                break
            headers.append(await self._wal.header(entry.number))
        return headers
