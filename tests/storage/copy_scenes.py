"""A source that is written to, copies of it, and the checks that a copy must pass."""

from __future__ import annotations

import asyncio

from tests.storage.archive_scenes import (
    GRACE_S,
    PLACES,
    Scene,
    archiver_of,
    check_logs,
    log_of,
    small_scene,
)
from tests.storage.known_topics import SaidTopics
from tests.storage.record_tables import SHOP, WEB, WEB_1, record_table

from tidelog.storage.bucket.copy import BucketCopy
from tidelog.storage.bucket.copy_transfer import Transfer
from tidelog.storage.bucket.finding import Finding
from tidelog.storage.bucket.verify import BucketVerification
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_codec import ParquetWalCodec
from tidelog.storage.wal.wal_tail import find_tail

JOURNAL_KEYS = [f"meta/{n:020d}.json" for n in range(3)]


class Source(MemoryObjectStore):
    """A bucket that changes during a test."""

    url = "memory:source"


class Alive:
    """A source that is written to: `goes_on` appends, archives, and deletes after the grace. It does not merge."""

    def __init__(self, store: ObjectStore, scene: Scene) -> None:
        self.store = store
        self.scene = scene
        self._archiver = archiver_of(scene, store, seed=77)
        self._turn = asyncio.Lock()

    async def goes_on(self, *, deletes: bool = True) -> None:
        async with self._turn:
            await self.scene.append({WEB: 2, SHOP: 1, WEB_1: 1}, epoch=2)
            await self._archiver.run_once()
            if deletes:
                self.scene.clock.now_s += GRACE_S
                await self._archiver.collect()
            await self.scene.append({WEB: 1}, epoch=2)


async def source_bucket() -> tuple[Source, Alive]:
    store = Source()
    scene = await small_scene(store)
    for key in JOURNAL_KEYS:
        await store.create(key, b"{}")
    alive = Alive(store, scene)
    await alive.goes_on()
    return store, alive


def copy_of(
    source: ObjectStore,
    target: ObjectStore,
    alive: Alive,
    *,
    topics: SaidTopics | None = None,
    cluster_id: str = "one",
) -> BucketCopy:
    runtime = Runtime(alive.scene.clock, SeededEntropy(5))
    return BucketCopy(Transfer(source, target), topics or SaidTopics(), cluster_id, runtime)


async def findings(store: ObjectStore) -> list[Finding]:
    return [finding async for finding in BucketVerification(store, deep=True).findings()]


async def expect_copy(target: ObjectStore, acknowledged: dict[object, int], scene: Scene) -> None:
    """Check that a copy is sound, holds at least the acknowledged records and only records of the source, and can be
    continued."""
    assert await findings(target) == []
    for place in PLACES:
        held = (await log_of(target, place)).num_rows
        assert acknowledged[place] <= held <= scene.next_offsets[place]
        assert (await log_of(target, place)).equals(record_table(range(held)))
    await expect_it_goes_on(target, scene)


async def expect_it_goes_on(target: ObjectStore, scene: Scene) -> None:
    """Check that a leader can take over the copy's log, append at the end of each partition, and archive, without gap
    or overlap."""
    tail = await find_tail(Wal(target, 0, ParquetWalCodec()))
    held = {place: (await log_of(target, place)).num_rows for place in PLACES}
    on_copy = Scene(target, scene.clock, next_seq=tail.next_seq, next_offsets=held)
    await on_copy.begin_epoch(tail.epoch + 1)
    await on_copy.append(dict.fromkeys(PLACES, 2), epoch=tail.epoch + 1)
    assert await findings(target) == []
    await archiver_of(on_copy, target, seed=78).run_once()
    assert await findings(target) == []
    await check_logs(on_copy, target)
