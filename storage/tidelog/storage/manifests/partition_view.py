"""A partition as one version of its shard's manifest describes it: for readers, who need no other topic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.segment_list import FoundSpan, SegmentList
from tidelog.storage.manifests.shard_manifest import ShardManifest
from tidelog.storage.manifests.shard_values import EMPTY, ColdState


@dataclass(frozen=True)
class PartitionView:
    """`version`: of the shard's manifest, -1 for none. `segments`: those of the topic in the shard, which the views of
    its partitions share."""

    place: TopicPartition
    shard: int
    version: int
    state: ColdState
    segments: SegmentList

    @property
    def log_start_offset(self) -> int:
        return self.state.log_start_offset

    @property
    def cold_end(self) -> int:
        """The records below it are in segments, the others in the write-ahead log."""
        return self.state.cold_end

    def find(self, offset: int, since_ms: int | None = None) -> FoundSpan | None:
        """The span that holds `offset`, or else the next one; None if there is none. `since_ms`: only in segments that
        have a record at this time or later, which may belong to another partition."""
        return self.segments.find(self.place.partition, offset, since_ms)

    def spans(self, offset: int = 0) -> Iterator[FoundSpan]:
        """The spans from the one that holds `offset` on, by offset."""
        return self.segments.spans(self.place.partition, offset)


def view_of(manifest: ShardManifest, place: TopicPartition) -> PartitionView:
    """The partition `place` in `manifest`; its topic's list was read (`ShardLog.with_lists`)."""
    topic = manifest.topics.get(place.topic_id)
    if topic is None:
        return PartitionView(place, manifest.shard, manifest.version, EMPTY, SegmentList())
    return PartitionView(place, manifest.shard, manifest.version, topic.partition(place.partition), topic.segments)
