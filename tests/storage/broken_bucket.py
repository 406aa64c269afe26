"""A sound bucket with a log and segments, and ways to break it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.storage.archive_scenes import GRACE_S, Scene, archiver_of, manifest_of, small_scene
from tests.storage.known_topics import SaidTopics
from tests.storage.record_tables import SHOP, WEB, WEB_1

from tidelog.storage.bucket.finding import Finding
from tidelog.storage.bucket.verify import BucketVerification
from tidelog.storage.layout import manifest_prefix
from tidelog.storage.manifests.json_envelope import seal, unseal
from tidelog.storage.manifests.manifest import MANIFEST_FORMAT, ChangeKind, Manifest, Segment
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.wal.wal_index import IndexedEntry, WalIndex, encode_block, index_row


@dataclass
class Bucket:
    """Two segments in each partition, entries from number 7 on in the log, and an index of it."""

    store: MemoryObjectStore
    scene: Scene
    topics: SaidTopics

    async def findings(self, *, deep: bool) -> list[Finding]:
        verification = BucketVerification(self.store, deep=deep, topics=self.topics)
        return [finding async for finding in verification.findings()]

    async def segment(self, number: int = 0) -> Segment:
        return (await manifest_of(self.store, WEB)).segments[number]

    def entry(self, seq: int) -> str:
        return self.scene.wal.key(seq)

    def manifest(self, version: int) -> str:
        return f"{manifest_prefix('web', WEB.topic_id, 0)}{version:020d}.json"

    async def change(self, key: str, how: Callable[[bytes], bytes]) -> None:
        await self.store.put(key, how((await self.store.get(key)).data))

    async def swap(self, one: str, other: str) -> None:
        first, second = (await self.store.get(one)).data, (await self.store.get(other)).data
        await self.store.put(one, second)
        await self.store.put(other, first)

    async def duplicate(self, key: str, under: str) -> None:
        await self.store.put(under, (await self.store.get(key)).data)

    async def append(self, manifest: Manifest, kind: ChangeKind = ChangeKind.ARCHIVE) -> None:
        """Append like a worker with a defect would."""
        log = ManifestLog(self.store, "web", WEB)
        await log.latest()
        await log.append(manifest, kind)

    async def rewrite(self, version: int, old: bytes, new: bytes) -> None:
        """Change a manifest's text and make its checksum fit, so that only the content shows the damage."""

        def changed(data: bytes) -> bytes:
            content = unseal("", data, MANIFEST_FORMAT)
            assert old in content, content
            return seal(MANIFEST_FORMAT, content.replace(old, new, 1))

        await self.change(self.manifest(version), changed)


async def bucket_of_scene() -> Bucket:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    archiver = archiver_of(scene, store)
    await archiver.run_once()
    await scene.append({WEB: 4, SHOP: 2, WEB_1: 1}, epoch=2)
    await scene.append({WEB: 1}, epoch=2)
    await archiver.run_once()
    scene.clock.now_s += GRACE_S
    await archiver.collect()
    for _ in range(3):
        await scene.append({WEB: 2, SHOP: 2}, epoch=2)
    await write_index(scene)
    return Bucket(store, scene, SaidTopics())


async def write_index(scene: Scene) -> None:
    entries = [IndexedEntry(*await scene.wal.header_and_size(seq)) for seq in range(7, scene.next_seq)]
    await WalIndex(scene.store, 0).put(0, encode_block([index_row(entry) for entry in entries]))


def cut(data: bytes) -> bytes:
    return data[:-7]


def flipped(data: bytes) -> bytes:
    return data[:40] + bytes([data[40] ^ 1]) + data[41:]
