"""A simulated bucket of terabytes that needs no disk: a real manifest in memory, and segments that are only listed.

Every request takes as long as one to S3.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from tidelog.coordinator.topics.topic import Topic
from tidelog.storage.layout import shard_segment_key
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind, ColdState, SegmentSpan, TopicSegment
from tidelog.storage.object_store import Body, ByteRange, ObjectInfo, StoredObject
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.memory import MemoryObjectStore

SHARD = 3
SEGMENT_BYTES = 128 * 1024 * 1024
PARTITIONS = 4
RECORDS = 10_000
"""Of each partition in each segment."""
REQUEST_S = 0.03
TOPICS_AN_APPEND = 100


class MadeUpBucket(MemoryObjectStore):
    """Implements `ObjectStore`: keeps all objects that are put, and adds the simulated segments to listings."""

    def __init__(self, request_s: float = REQUEST_S) -> None:
        super().__init__()
        self._request_s = request_s
        self._segments: dict[str, ObjectInfo] = {}
        self._names: list[str] = []
        self.requests = 0

    async def fill(self, topics: int, segments: int, *, a_pass: int = TOPICS_AN_APPEND) -> int:
        """Write the manifest of a shard with `segments` segments in each of `topics` topics, `a_pass` of them with each
        version. Return their bytes."""
        log = ShardLog(self, SHARD, Runtime())
        await log.latest()
        numbers = range(topics)
        for first in numbers[::a_pass]:
            some = numbers[first : first + a_pass]
            changes = {self.topic(number).topic_id: self._archived(number, segments) for number in some}
            await log.append(ManifestChange(ChangeKind.ARCHIVE, changes))
        self._names = sorted(self._segments)
        return SEGMENT_BYTES * len(self._segments)

    def topic(self, number: int) -> Topic:
        return Topic(f"topic-{number}", f"{number:032x}", (SHARD,) * PARTITIONS)

    def _archived(self, topic: int, count: int) -> TopicChange:
        added = tuple(self._segments_of(topic, count))
        states = {number: ColdState(0, count * RECORDS) for number in range(PARTITIONS)}
        for segment in added:
            self._segments[segment.key] = ObjectInfo(segment.key, segment.size_bytes, "1", 1)
        return TopicChange(f"topic-{topic}", added=added, partitions=states)

    def _segments_of(self, topic: int, count: int) -> Iterator[TopicSegment]:
        for run in range(count):
            # The ids are spread like real ones, so that the listing has another order than the manifest.
            key = shard_segment_key(f"topic-{topic}", f"{topic:032x}", SHARD, f"{run * 7_368_787 % 2**32:032x}")
            spans = tuple(
                SegmentSpan(number, run * RECORDS, (run + 1) * RECORDS - 1, RECORDS, RECORDS * 300)
                for number in range(PARTITIONS)
            )
            yield TopicSegment(key, run, 2, SEGMENT_BYTES, f"{topic * count + run:064x}", run, run + 1, run, spans)

    def grow(self, key: str) -> None:
        """Make the object of a segment longer by a byte than its manifest says."""
        info = self._segments[key]
        self._segments[key] = ObjectInfo(key, info.size + 1, "2", 1)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
        await self._round_trip()
        return await super().get(key, byte_range)

    async def list(self, prefix: str, *, start_after: str = "", limit: int = 1_000) -> Sequence[ObjectInfo]:
        await self._round_trip()
        kept = await super().list(prefix, start_after=start_after, limit=limit)
        first = max(bisect_left(self._names, prefix), bisect_right(self._names, start_after))
        made_up = [self._segments[key] for key in self._names[first : first + limit] if key.startswith(prefix)]
        return sorted((*kept, *made_up), key=lambda info: info.key)[:limit]

    async def head(self, key: str) -> ObjectInfo:
        await self._round_trip()
        return self._segments.get(key) or await super().head(key)

    async def create(self, key: str, data: Body) -> str:
        await self._round_trip()
        return await super().create(key, data)

    async def _round_trip(self) -> None:
        self.requests += 1
        await asyncio.sleep(self._request_s)
