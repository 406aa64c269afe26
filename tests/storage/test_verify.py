"""`verify` finds nothing in a sound bucket, and names the object in a damaged one."""

from __future__ import annotations

import asyncio

import pytest
from tests.storage.archive_scenes import GRACE_S, TOPIC_NAMES, GatedStore, Scene, manifest_of, small_scene
from tests.storage.record_tables import SHOP, WEB, payload, record_table

from tidelog.storage.archive.archiver import Archiver, ArchiverSettings
from tidelog.storage.bucket.finding import Finding, Severity
from tidelog.storage.bucket.listing import stored_bytes
from tidelog.storage.bucket.verify import BucketVerification
from tidelog.storage.layout import manifest_prefix, parse_segment_key
from tidelog.storage.object_store import ObjectStore, list_all
from tidelog.storage.segments.segment_codec import encode_segment
from tidelog.storage.stores.memory import MemoryObjectStore


async def findings(store: ObjectStore, *, deep: bool = True) -> list[Finding]:
    return [finding async for finding in BucketVerification(store, deep=deep).findings()]


def archiver(scene: Scene, store: ObjectStore) -> Archiver:
    return Archiver(store, scene.wal, scene.runtime(), TOPIC_NAMES.get, ArchiverSettings(grace_s=GRACE_S))


async def half_archived(store: ObjectStore) -> Scene:
    """Segments in every partition, entries below the floor deleted, and two entries above it."""
    scene = await small_scene(store)
    made = archiver(scene, store)
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
    await archiver(scene, store).run_once()
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


async def test_a_gap_between_manifest_and_log_is_an_error(store: MemoryObjectStore, scene: Scene) -> None:
    prefix = manifest_prefix("web", WEB.topic_id, 0)
    async for info in list_all(store, prefix):
        await store.delete(info.key)
    found = await findings(store)
    assert [finding.severity for finding in found] == [Severity.ERROR, Severity.ORPHAN]
    assert found[0].key.startswith(prefix)
    assert "the WAL begins at 6" in found[0].text


async def test_a_log_that_begins_late_without_any_manifest_is_a_warning(store: MemoryObjectStore, scene: Scene) -> None:
    async for info in list_all(store, "topics/shop/"):
        await store.delete(info.key)
    severity, key, text = await only(store)
    assert (severity, key) == (Severity.WARNING, scene.wal.key(5))
    assert "deleted" in text


async def test_a_missing_segment_is_an_error(store: MemoryObjectStore, scene: Scene) -> None:
    segment = (await manifest_of(store, WEB)).segments[0]
    await store.delete(segment.key)
    severity, key, text = await only(store, deep=False)
    assert (severity, key) == (Severity.ERROR, segment.key)
    assert "missing" in text


async def test_a_damaged_segment_is_found_by_a_deep_look(store: MemoryObjectStore, scene: Scene) -> None:
    segment = (await manifest_of(store, WEB)).segments[0]
    await flip(store, segment.key)
    assert await findings(store, deep=False) == []
    severity, key, _ = await only(store)
    assert (severity, key) == (Severity.ERROR, segment.key)


async def test_a_segment_of_another_size_is_found_at_once(store: MemoryObjectStore, scene: Scene) -> None:
    segment = (await manifest_of(store, WEB)).segments[0]
    await store.put(segment.key, (await store.get(segment.key)).data[:-1])
    severity, key, text = await only(store, deep=False)
    assert (severity, key) == (Severity.ERROR, segment.key)
    assert "bytes" in text


async def test_a_sound_segment_that_is_not_the_manifests_is_an_error(store: MemoryObjectStore, scene: Scene) -> None:
    segment = (await manifest_of(store, WEB)).segments[0]
    altered = [(key, value and value.upper(), headers) for key, value, headers in map(payload, range(6))]
    made = encode_segment("web", WEB, record_table(range(6), altered), parse_segment_key(segment.key).segment_id)
    await store.put(segment.key, made.body)
    assert made.segment.key == segment.key
    assert (await only(store))[:2] == (Severity.ERROR, segment.key)


async def test_a_segment_that_no_manifest_names_is_an_orphan(store: MemoryObjectStore, scene: Scene) -> None:
    made = encode_segment("web", WEB, record_table([6, 7]), "cd" * 16)
    await store.create(made.segment.key, made.body)
    assert (await only(store))[:2] == (Severity.ORPHAN, made.segment.key)


async def test_a_damaged_manifest_is_an_error(store: MemoryObjectStore, scene: Scene) -> None:
    key = manifest_prefix("web", WEB.topic_id, 0) + f"{0:020d}.json"
    await flip(store, key)
    assert (await only(store))[:2] == (Severity.ERROR, key)


@pytest.mark.parametrize(
    "key", ["wal/0000/notes.txt", "wal/x", "topics/web/readme", "topics/web/id/partition=0/x.parquet"]
)
async def test_strangers_are_warned_of(store: MemoryObjectStore, scene: Scene, key: str) -> None:
    await store.put(key, b"hello")
    assert (await only(store))[:2] == (Severity.WARNING, key)


async def test_a_damaged_floor_is_an_error(store: MemoryObjectStore, scene: Scene) -> None:
    await store.put("wal/0002/_floor", b"{}")
    assert (await only(store))[:2] == (Severity.ERROR, "wal/0002/_floor")


async def test_a_partition_in_two_shards_is_an_error(store: MemoryObjectStore, scene: Scene) -> None:
    other = Scene(store, shard=1, next_offsets={WEB: 6})
    await other.append({WEB: 1})
    severity, key, text = await only(store)
    assert (severity, key) == (Severity.ERROR, other.wal.key(0))
    assert "another shard" in text


async def test_a_broker_may_archive_at_every_step_of_a_verification(store: MemoryObjectStore) -> None:
    """A whole pass with deletion happens between any two requests of a verification; it reports no error."""
    pause, reached = 0, True
    while reached:
        bucket = MemoryObjectStore()
        scene = await half_archived(bucket)
        gated = GatedStore(bucket, pause)
        verification = asyncio.create_task(findings(gated))
        waiting = asyncio.create_task(gated.reached.wait())
        await asyncio.wait([verification, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        reached = gated.reached.is_set()
        made = archiver(scene, bucket)
        await made.run_once()
        scene.clock.now_s += GRACE_S
        await made.collect()
        gated.gate.set()
        wrong = [finding for finding in await verification if finding.severity is not Severity.ORPHAN]
        assert wrong == [], f"paused before request {pause}"
        pause += 1
    assert pause > 10
