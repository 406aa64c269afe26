"""Deletes the records of a partition below an offset on request: Kafka's ``DeleteRecords``.

The log start moves to that offset, and segments that have no other records leave the list in the same version; their
objects are deleted a grace later. A segment that the offset cuts, or that has records of other partitions, stays whole:
the records below the log start are no longer read, and go with the segment or at its next merge.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.upkeep.log_starts import spans_of


def deleted_below(topic: TopicState, partition: int, offset: int) -> TopicChange | None:
    """The change that moves the log start of a partition to `offset`, at most its cold end; None if it begins there or
    later."""
    state = topic.partition(partition)
    assert offset <= state.cold_end, "only archived records are deleted here"
    if offset <= state.log_start_offset:
        return None
    spans = spans_of(topic)
    dead = spans.dead_segments(np.where(spans.numbers == partition, offset, spans.log_starts))
    return TopicChange(topic.name, removed=dead, partitions={partition: replace(state, log_start_offset=offset)})


async def delete_records(log: ShardLog, place: SegmentPlace, partition: int, before_offset: int) -> ShardManifest:
    """Delete the records of `partition` below `before_offset`, or below the cold end if that is less. Returns the
    newest version, whose log may begin later than `before_offset`, or earlier if records up to it are not archived
    yet. Raises `Conflict` if other workers keep being faster; `Unavailable`, `Corrupt`. Running again is always
    right."""

    def plan(manifest: ShardManifest) -> ManifestChange | None:
        topic = manifest.topics.get(place.topic_id)
        if topic is None:
            return None
        change = deleted_below(topic, partition, min(before_offset, topic.partition(partition).cold_end))
        return ManifestChange(ChangeKind.DELETE_RECORDS, {place.topic_id: change}) if change else None

    return await log.change([place.topic_id], plan)
