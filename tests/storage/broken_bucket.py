"""A sound bucket with a log and segments, and ways to break it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace
from tests.storage.archive_scenes import GRACE_S, Scene, archiver_of, manifest_of, small_scene
from tests.storage.known_topics import SaidTopics
from tests.storage.record_tables import SHOP, WEB, WEB_1

from tidelog.storage.bucket.finding import Finding
from tidelog.storage.bucket.verify.verification import BucketVerification
from tidelog.storage.layout import manifests_prefix
from tidelog.storage.manifests.segment_columns import columns_of
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, decode_version, encode_version
from tidelog.storage.manifests.shard_values import ColdState, TopicSegment
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.wal.wal_index import IndexedEntry, WalIndex, encode_block, index_row


@dataclass
class Bucket:
    """Two segments of each topic, entries from number 7 on in the log, and an index of it."""

    store: MemoryObjectStore
    scene: Scene
    topics: SaidTopics

    async def findings(self, *, deep: bool) -> list[Finding]:
        verification = BucketVerification(self.store, deep=deep, topics=self.topics)
        return [finding async for finding in verification.findings()]

    async def segment(self, number: int = 0) -> TopicSegment:
        return tuple((await manifest_of(self.store)).topics[WEB.topic_id].segments)[number]

    def entry(self, seq: int) -> str:
        return self.scene.wal.key(seq)

    def manifest(self, version: int) -> str:
        return f"{manifests_prefix(0)}{version:020d}.json"

    async def change(self, key: str, how: Callable[[bytes], bytes]) -> None:
        await self.store.put(key, how((await self.store.get(key)).data))

    async def swap(self, one: str, other: str) -> None:
        first, second = (await self.store.get(one)).data, (await self.store.get(other)).data
        await self.store.put(one, second)
        await self.store.put(other, first)

    async def duplicate(self, key: str, under: str) -> None:
        await self.store.put(under, (await self.store.get(key)).data)

    async def append(self, change: ManifestChange) -> str:
        """Append like a worker with a defect would. Returns the key of the version."""
        log = self.scene.log
        return log.key((await log.append(change, await log.latest())).version)

    async def version(self, number: int) -> ShardManifest:
        key = self.manifest(number)
        return decode_version(key, (await self.store.get(key)).data)

    async def alter(self, how: Callable[[TopicState], TopicState]) -> str:
        """Change the topic in the newest version, and not what the version says that it changed. Returns its key."""
        manifest = await self.version(1)
        topics = {**manifest.topics, WEB.topic_id: how(manifest.topics[WEB.topic_id])}
        await self.store.put(self.manifest(1), encode_version(replace(manifest, topics=topics)))
        return self.manifest(1)

    async def alter_segment(self, number: int, how: Callable[[TopicSegment], TopicSegment]) -> str:
        """Change what the newest version says of a segment. Returns the segment's key."""
        key = (await self.segment(number)).key

        def altered(topic: TopicState) -> TopicState:
            return replace(topic, added=columns_of([how(each) if each.key == key else each for each in topic.added]))

        await self.alter(altered)
        return key

    async def alter_state(self, how: Callable[[ColdState], ColdState]) -> str:
        """Change the state of the first partition. Returns the version's key."""
        return await self.alter(
            lambda topic: replace(topic, partitions={**topic.partitions, 0: how(topic.partitions[0])})
        )


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
