"""A partition as one version of its shard's manifest describes it: for readers, who need no other topic."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.segment_list import FoundSpan, SegmentList
from tidelog.storage.manifests.shard_manifest import ShardManifest
from tidelog.storage.manifests.shard_values import ColdState


class PartitionView(msgspec.Struct, frozen=True):
    """`version`: of the shard's manifest, -1 for none. `list_key`: the list of the topic. `segments`: those of the
    topic in the shard, which the views of its partitions share; None if the list is not in memory."""

    place: TopicPartition
    shard: int
    version: int
    state: ColdState
    list_key: str
    segments: SegmentList | None

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
        assert self.segments is not None, "the list is in memory"
        return self.segments.find(self.place.partition, offset, since_ms)

    def spans(self, offset: int = 0) -> Iterator[FoundSpan]:
        """The spans from the one that holds `offset` on, by offset."""
        assert self.segments is not None, "the list is in memory"
        return self.segments.spans(self.place.partition, offset)

    def time_bounds(self, offset: int) -> tuple[int, int] | None:
        """Two times between which the largest timestamp of the records from `offset` on lies, bounds included. None if
        there are no such records."""
        assert self.segments is not None, "the list is in memory"
        return self.segments.time_bounds(self.place.partition, offset)

    def needs_list(self, manifest: ShardManifest) -> bool:
        """Whether a list has to be read for `in_version`. While the topic's list is the same, a state that does not
        differ from it is the state of this view."""
        topic = manifest.topics.get(self.place.topic_id)
        return topic is not None and topic.lacks_list and topic.list_key != self.list_key

    def in_version(self, manifest: ShardManifest) -> PartitionView:
        """The partition in a later version, or in this one, without segments if the list is not in memory."""
        topic = manifest.topics.get(self.place.topic_id)
        if topic is None or not topic.lacks_list:
            return view_of(manifest, self.place)
        state = topic.partitions.get(self.place.partition, self.state)
        return PartitionView(self.place, manifest.shard, manifest.version, state, self.list_key, None)


def view_of(manifest: ShardManifest, place: TopicPartition) -> PartitionView:
    """The partition `place` in `manifest`; its topic's list was read (`ShardLog.with_lists`)."""
    topic = manifest.topics.get(place.topic_id)
    list_key, segments = (topic.list_key, topic.segments) if topic else ("", SegmentList())
    return PartitionView(place, manifest.shard, manifest.version, manifest.state(place), list_key, segments)
