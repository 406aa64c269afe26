"""A source that is written to, copies of it, and the checks that a copy must pass."""

from __future__ import annotations

import asyncio

from tests.storage.archive_scenes import (
    GRACE_S,
    PLACES,
    Scene,
    archiver_of,
    check_logs,
    keys,
    log_of,
    manifest_of,
    small_scene,
)
from tests.storage.known_topics import SaidTopics
from tests.storage.record_tables import SHOP, WEB, WEB_1, record_table

from tidelog.storage.bucket.attest import BucketAttestation, TopicHead
from tidelog.storage.bucket.copy.bucket_copy import BucketCopy
from tidelog.storage.bucket.copy.transfer import Transfer
from tidelog.storage.bucket.copy_mark import decode_copy_mark
from tidelog.storage.bucket.verify.verification import BucketVerification
from tidelog.storage.layout import COPY_KEY, TOPICS_PREFIX, lists_prefix
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore
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


async def expect_sound(store: ObjectStore) -> None:
    """Check that the bucket verifies, that the manifest names exactly the segments and lists that exist, and that its
    history is whole."""
    assert [finding async for finding in BucketVerification(store, deep=True).findings()] == []
    topics = (await manifest_of(store)).topics.values()
    assert await keys(store, TOPICS_PREFIX) == sorted(segment.key for topic in topics for segment in topic.segments)
    assert await keys(store, lists_prefix(0)) == sorted(topic.stored.key for topic in topics if topic.stored)
    await expect_history(store)


async def expect_history(store: ObjectStore) -> None:
    """Check that all versions form one chain of hashes from the first on, and that its steps lead to the lists of the
    newest version."""
    heads = [head async for head in BucketAttestation(store, Runtime()).heads()]
    known = [head for head in heads if isinstance(head, TopicHead)]
    assert [head async for head in BucketAttestation(store, Runtime(), known).heads()] == heads == known


async def is_marked_whole(target: ObjectStore) -> bool:
    return decode_copy_mark((await target.get(COPY_KEY)).data).whole


async def expect_copy(target: ObjectStore, acknowledged: dict[object, int], scene: Scene) -> None:
    """Check that a copy is sound, holds at least the acknowledged records and only records of the source, and can be
    continued."""
    await expect_sound(target)
    for place in PLACES:
        held = (await log_of(target, place)).num_rows
        assert acknowledged[place] <= held <= scene.next_offsets[place]
        assert (await log_of(target, place)).equals(record_table(range(held)))
    await expect_it_goes_on(target, scene)


async def expect_it_goes_on(target: ObjectStore, scene: Scene) -> None:
    """Check that a leader can take over the copy's log, append at the end of each partition, and archive, without gap
    or overlap."""
    tail = await find_tail(Scene(target).wal)
    held = {place: (await log_of(target, place)).num_rows for place in PLACES}
    on_copy = Scene(target, scene.clock, next_seq=tail.next_seq, next_offsets=held)
    await on_copy.begin_epoch(tail.epoch + 1)
    await on_copy.append(dict.fromkeys(PLACES, 2), epoch=tail.epoch + 1)
    await check_logs(on_copy, target)
    await archiver_of(on_copy, target, seed=78).run_once()
    await expect_sound(target)
    await check_logs(on_copy, target)
