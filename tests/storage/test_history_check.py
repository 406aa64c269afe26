"""The history of a partition is checked block by block: every damaged block is named, and no sound one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.storage.archive_scenes import ManualClock
from tests.storage.collect_scenes import GRACE_S, PLACE, CollectScene
from tests.storage.manifest_histories import TOPIC, decode_manifest
from tests.storage.record_tables import WEB

from tidelog.storage.bucket.finding import Finding, Report, Seen, Severity
from tidelog.storage.bucket.manifest_check import HistoryCheck, check_manifests
from tidelog.storage.layout import history_prefix
from tidelog.storage.manifests.manifest import Manifest
from tidelog.storage.manifests.manifest_chain import head_after, step_of
from tidelog.storage.manifests.manifest_codec import encode_manifest
from tidelog.storage.manifests.manifest_history import ManifestHistory
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ByteRange, ObjectInfo, ObjectStore, StoredObject
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.upkeep.task import Place


async def a_history(store: ObjectStore) -> list[str]:
    """Thirty versions, the older ones in blocks; return the keys of the blocks."""
    scene = CollectScene(store)
    await scene.grow(30)
    await scene.collector().see_wait_and_run()
    history = ManifestHistory(store, TOPIC, WEB)
    return [history.key(*versions) for versions in await history.blocks()]


async def checked(store: ObjectStore) -> list[Finding]:
    found: list[Seen] = []
    await check_manifests(store, Place(TOPIC, WEB), reporting(found), deep=True)
    return [seen for seen in found if isinstance(seen, Finding)]


def reporting(found: list[Seen]) -> Report:
    async def report(seen: Seen) -> None:
        found.append(seen)

    return report


@pytest.fixture
def store() -> MemoryObjectStore:
    return MemoryObjectStore()


async def test_a_sound_history_has_no_findings(store: MemoryObjectStore) -> None:
    assert len(await a_history(store)) > 2
    assert await checked(store) == []


@pytest.mark.parametrize("newest_is_damaged", [False, True])
async def test_every_damaged_block_is_named_once(store: MemoryObjectStore, newest_is_damaged: bool) -> None:
    blocks = await a_history(store)
    damaged = [blocks[0], blocks[2]]
    for key in damaged:
        await store.put(key, (await store.get(key)).data[:-9])
    log = ManifestLog(store, TOPIC, WEB)
    if newest_is_damaged:
        key = log.key((await log.latest()).version)
        await store.put(key, b"?")
        damaged.append(key)
    found = await checked(store)
    assert sorted(finding.key for finding in found) == sorted(damaged)
    assert {finding.severity for finding in found} == {Severity.ERROR}


async def test_any_flipped_bit_of_a_block_is_named_or_means_the_same(store: MemoryObjectStore) -> None:
    key = (await a_history(store))[1]
    good = (await store.get(key)).data
    for place in range(0, len(good), 7):
        await store.put(key, good[:place] + bytes([good[place] ^ (1 << place % 8)]) + good[place + 1 :])
        assert [finding.key for finding in await checked(store)] in ([key], [])
    await store.put(key, good.replace(b'"version":4', b'"version":5', 1))
    assert [finding.key for finding in await checked(store)] == [key]


@pytest.mark.parametrize("damage", ["cut", "forged"])
async def test_a_version_that_is_history_and_still_there_has_to_say_the_same(
    store: MemoryObjectStore, damage: str
) -> None:
    """For example the base of other versions, or a version that is not collected yet."""
    scene = CollectScene(store)
    await scene.grow(30)
    first = (await store.get(scene.history.log.key(2))).data
    await scene.collector().see_wait_and_run()
    key = scene.history.log.key(2)
    await store.put(key, first)
    assert await checked(store) == []
    if damage == "cut":
        await store.put(key, first[:-9])
    else:
        version = replace(decode_manifest(key, first), cold_end=10**9)
        await store.put(key, encode_manifest(replace(version, head=head_of(version))))
    assert [finding.key for finding in await checked(store)] == [key]


def head_of(version: Manifest) -> str:
    return head_after(version.previous_head, version.topic_partition, step_of(version))


async def test_a_stranger_among_the_blocks_is_warned_of(store: MemoryObjectStore) -> None:
    await a_history(store)
    key = f"{history_prefix(TOPIC, WEB.topic_id, WEB.partition)}notes.txt"
    await store.put(key, b"x")
    assert [(finding.severity, finding.key) for finding in await checked(store)] == [(Severity.WARNING, key)]


async def test_blocks_are_looked_at_where_all_manifests_are_lost(store: MemoryObjectStore) -> None:
    blocks = await a_history(store)
    log = ManifestLog(store, TOPIC, WEB)
    async for version in log.versions():
        await store.delete(log.key(version))
    assert [finding.key for finding in await checked(store)] == [blocks[-1]]


async def test_versions_that_become_history_during_the_check_are_no_fault(store: MemoryObjectStore) -> None:
    """Between any two requests of the check, versions are appended, made history, and deleted."""
    scene = CollectScene(store)
    await scene.grow(12)
    collector = scene.collector()
    newest = await scene.latest()

    class Busy(MemoryObjectStore):
        async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
            await scene.grow(2)
            scene.clock.now_s += GRACE_S
            await collector.run()
            return await store.get(key, byte_range)

        async def list(self, prefix: str, *, start_after: str = "", limit: int = 1_000) -> Sequence[ObjectInfo]:
            return await store.list(prefix, start_after=start_after, limit=limit)

    busy = Busy(ManualClock())
    found: list[Seen] = []
    await HistoryCheck(busy, PLACE, reporting(found)).run(newest)
    assert found == []
    assert (await scene.latest()).version > newest.version + 10
