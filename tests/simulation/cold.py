"""The archive of the simulation: the product's manifest of a shard, over segments that list batches instead of rows.

Versions, the floor in them, and create-if-absent are the product's (`manifests.shard_log`). A segment is a JSON object
under the key of a real one, so that uploads and manifests are separate requests, too.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.simulation.batches import TOPIC_ID, Batch, Placed

from tidelog.storage.layout import shard_segment_key
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind, ColdState, SegmentSpan, TopicSegment
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.wal.floor import BEGINNING, Floor

TOPIC = "t"


@dataclass(frozen=True)
class Cold:
    """Version `version` of the archive; -1 before the first."""

    version: int = -1
    floor: Floor = BEGINNING
    batches: tuple[Placed, ...] = ()

    def cold_end(self, partition: int) -> int:
        """The first offset of `partition` that is not archived."""
        ends = [placed.next_offset for placed in self.batches if placed.batch.partition == partition]
        return max(ends, default=0)

    def beyond(self, batches: tuple[Placed, ...]) -> tuple[Placed, ...]:
        """Those of `batches` that are not archived."""
        return tuple(placed for placed in batches if placed.base_offset >= self.cold_end(placed.batch.partition))


def cold_of(manifest: ShardManifest, bodies: Mapping[str, bytes]) -> Cold:
    """What a version lists; `bodies` has the segments by key."""
    topic = manifest.topics.get(TOPIC_ID)
    segments = list(topic.segments) if topic else []
    batches = tuple(placed for segment in segments for placed in decode_segment(bodies[segment.key]))
    return Cold(manifest.version, manifest.floor, batches)


class ColdReader:
    """Reads versions of `log` with their segments, each segment once."""

    def __init__(self, store: ObjectStore, log: ShardLog) -> None:
        self._store = store
        self._log = log
        self._bodies: dict[str, bytes] = {}

    async def newest(self) -> Cold:
        return await self.of(await self._log.newest())

    async def of(self, manifest: ShardManifest) -> Cold:
        topic = manifest.topics.get(TOPIC_ID)
        for segment in topic.segments if topic else ():
            if segment.key not in self._bodies:
                self._bodies[segment.key] = (await self._store.get(segment.key)).data
        return cold_of(manifest, self._bodies)


def encode_segment(batches: Sequence[Placed]) -> bytes:
    return json.dumps(
        [[b.batch.producer, b.batch.sequence, b.batch.partition, b.batch.count, b.base_offset] for b in batches]
    ).encode()


def decode_segment(data: bytes) -> tuple[Placed, ...]:
    return tuple(Placed(Batch(*batch), base) for *batch, base in json.loads(data))


def segment_of(shard: int, segment_id: str, run: int, batches: Sequence[Placed]) -> TopicSegment:
    """The segment that holds `batches`, at least one."""
    offsets: defaultdict[int, list[Placed]] = defaultdict(list)
    for placed in batches:
        offsets[placed.batch.partition].append(placed)
    spans = tuple(
        SegmentSpan(number, parts[0].base_offset, parts[-1].next_offset - 1, sum(each.batch.count for each in parts), 1)
        for number, parts in sorted(offsets.items())
    )
    return TopicSegment(shard_segment_key(TOPIC, TOPIC_ID, shard, segment_id), run, 0, 1, segment_id, 0, 0, 0, spans)


def archived(segments: Sequence[TopicSegment], floor: Floor | None) -> ManifestChange:
    """The change of a pass."""
    states = {span.partition: ColdState(cold_end=span.next_offset) for segment in segments for span in segment.spans}
    topics = {TOPIC_ID: TopicChange(TOPIC, added=tuple(segments), partitions=states)} if segments else {}
    return ManifestChange(ChangeKind.ARCHIVE, topics, floor)
