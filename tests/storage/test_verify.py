"""`verify` finds nothing in a sound bucket, and names the object in a damaged one."""

from __future__ import annotations

import asyncio

import pytest
from tests.storage.archive_scenes import GRACE_S, GatedStore, Scene, archiver_of, manifest_of, small_scene
from tests.storage.record_tables import SHOP, WEB

from tidelog.storage.bucket.finding import Finding, Severity
from tidelog.storage.bucket.listing import stored_bytes
from tidelog.storage.bucket.verify.verification import BucketVerification
from tidelog.storage.manifests.shard_values import TopicSegment
from tidelog.storage.object_store import ObjectStore, list_all
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.memory import MemoryObjectStore


async def findings(store: ObjectStore, *, deep: bool = True, runtime: Runtime | None = None) -> list[Finding]:
    return [finding async for finding in BucketVerification(store, deep=deep, runtime=runtime).findings()]


async def segment_of(store: ObjectStore) -> TopicSegment:
    return next(iter((await manifest_of(store)).topics[WEB.topic_id].segments))


async def half_archived(store: ObjectStore) -> Scene:
    """Segments in every partition, entries below the floor deleted, and two entries above it."""
    scene = await small_scene(store)
    made = archiver_of(scene, store)
    await made.run_once()
    scene.clock.now_s += GRACE_S
    await made.collect()
    await scene.append({WEB: 2, SHOP: 2}, epoch=2)
    await scene.append({WEB: 2}, epoch=2)
    return scene


@pytest.fixture
def store() -> MemoryObjectStore:
    return MemoryObjectStore()


@pytest.fixture
async def scene(store: MemoryObjectStore) -> Scene:
    return await half_archived(store)


@pytest.mark.parametrize("deep", [False, True])
async def test_a_sound_bucket_has_no_findings(store: MemoryObjectStore, scene: Scene, deep: bool) -> None:
    assert await findings(store, deep=deep) == []
    assert await findings(MemoryObjectStore(), deep=deep) == []


async def test_the_summary_counts_every_object(store: MemoryObjectStore, scene: Scene) -> None:
    looks = []
    verification = BucketVerification(store, on_looked=lambda: looks.append(verification.summary.objects))
    assert [finding async for finding in verification.findings()] == []
    infos = [info async for info in list_all(store, "")]
    assert (verification.summary.objects, looks[-1]) == (len(infos), len(infos))
    assert await stored_bytes(store) == sum(info.size for info in infos)
    assert verification.summary.sound


async def only(store: ObjectStore, *, deep: bool = True) -> tuple[Severity, str, str]:
    found = await findings(store, deep=deep)
    assert len(found) == 1, found
    return found[0].severity, found[0].key, found[0].text


async def flip(store: ObjectStore, key: str) -> None:
    data = bytearray((await store.get(key)).data)
    data[40] ^= 1
    await store.put(key, data)


async def test_a_missing_entry_is_an_error(store: MemoryObjectStore, scene: Scene) -> None:
    await scene.append({WEB: 1}, epoch=2)
    await store.delete(scene.wal.key(6))
    found = await findings(store)
    assert (found[0].severity, found[0].key) == (Severity.ERROR, scene.wal.key(6))
    assert "missing" in found[0].text


async def test_a_damaged_entry_is_found_by_a_deep_look(store: MemoryObjectStore, scene: Scene) -> None:
    await flip(store, scene.wal.key(6))
    assert await findings(store, deep=False) == []
    severity, key, text = await only(store)
    assert (severity, key) == (Severity.ERROR, scene.wal.key(6))
    assert "checksum" in text


async def test_entries_below_the_floor_wait_for_their_deletion(store: MemoryObjectStore) -> None:
    scene = await small_scene(store)
    await archiver_of(scene, store).run_once()
    verification = BucketVerification(store)
    assert [finding async for finding in verification.findings()] == []
    assert verification.summary.waiting == 5


async def test_an_epoch_that_goes_back_is_an_error(store: MemoryObjectStore, scene: Scene) -> None:
    await scene.append({WEB: 1}, epoch=1)
    severity, key, text = await only(store)
    assert (severity, key) == (Severity.ERROR, scene.wal.key(7))
    assert "inv. 3" in text


async def test_offsets_with_a_gap_in_the_log_are_an_error(store: MemoryObjectStore, scene: Scene) -> None:
    scene.next_offsets[WEB] += 1
    await scene.append({WEB: 1}, epoch=2)
    severity, key, text = await only(store)
    assert (severity, key) == (Severity.ERROR, scene.wal.key(7))
    assert "inv. 4" in text


async def test_a_missing_segment_is_an_error(store: MemoryObjectStore, scene: Scene) -> None:
    segment = await segment_of(store)
    await store.delete(segment.key)
    severity, key, text = await only(store, deep=False)
    assert (severity, key) == (Severity.ERROR, segment.key)
    assert "missing" in text


async def test_a_damaged_segment_is_found_by_a_deep_look(store: MemoryObjectStore, scene: Scene) -> None:
    segment = await segment_of(store)
    await flip(store, segment.key)
    assert await findings(store, deep=False) == []
    severity, key, _ = await only(store)
    assert (severity, key) == (Severity.ERROR, segment.key)


async def test_a_segment_of_another_size_is_found_at_once(store: MemoryObjectStore, scene: Scene) -> None:
    segment = await segment_of(store)
    await store.put(segment.key, (await store.get(segment.key)).data[:-1])
    severity, key, text = await only(store, deep=False)
    assert (severity, key) == (Severity.ERROR, segment.key)
    assert "bytes" in text


STRANGERS = (
    *("wal/0000/notes.txt", "wal/x", "wal/0000/_floor", "topics/web/readme", "topics/web/id/x.parquet"),
    *("topics/web/id/partition=0/x", "manifests/x", "manifests/0000/x.json", "manifests/0000/lists/x"),
    "manifests/0000/history/x",
)


@pytest.mark.parametrize("key", STRANGERS)
async def test_strangers_are_warned_of(store: MemoryObjectStore, scene: Scene, key: str) -> None:
    await store.put(key, b"hello")
    assert (await only(store))[:2] == (Severity.WARNING, key)


async def test_a_partition_in_two_shards_is_an_error(store: MemoryObjectStore, scene: Scene) -> None:
    other = Scene(store, shard=1, next_offsets={WEB: 6})
    await other.append({WEB: 1})
    found = await findings(store)
    assert (found[0].severity, found[0].key) == (Severity.ERROR, other.wal.key(0))
    assert "another shard" in found[0].text


async def test_a_broker_may_archive_at_every_step_of_a_verification(store: MemoryObjectStore) -> None:
    """A whole pass with deletion happens between any two requests of a verification; it reports no error."""
    pause, reached = 0, True
    while reached:
        bucket = MemoryObjectStore()
        scene = await half_archived(bucket)
        gated = GatedStore(bucket, pause)
        verification = asyncio.create_task(findings(gated, runtime=scene.runtime()))
        waiting = asyncio.create_task(gated.reached.wait())
        await asyncio.wait([verification, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        reached = gated.reached.is_set()
        made = archiver_of(scene, bucket, seed=1)
        await made.run_once()
        scene.clock.now_s += GRACE_S
        await made.collect()
        gated.gate.set()
        wrong = [finding for finding in await verification if finding.severity is not Severity.ORPHAN]
        assert wrong == [], f"paused before request {pause}"
        pause += 1
    assert pause > 10
