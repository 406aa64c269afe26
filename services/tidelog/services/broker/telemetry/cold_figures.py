"""Sums over the manifest of a shard, by topic: segments, bytes and garbage.

    hot      WAL entries in the bucket: not archived yet (the debt), or waiting for their deletion
    cold     segments that a manifest lists
    garbage  objects that left a manifest and wait for their deletion

A version has the sums of each topic, so no list has to be read. A compacted partition is clean up to an offset. The
ratio of records to offsets below it shows what compaction saves; that is known only of topics whose list was read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from tidelog.services.broker.api.costs import ColdFigures
from tidelog.storage.layout import segment_topic_id
from tidelog.storage.manifests.shard_manifest import ShardManifest
from tidelog.storage.manifests.shard_values import Garbage
from tidelog.storage.manifests.topic_state import TopicState


def cold_figures(manifest: ShardManifest) -> Mapping[str, ColdFigures]:
    """By topic id. Garbage of topics that the manifest does not have any more is there as well."""
    garbage: defaultdict[str, list[Garbage]] = defaultdict(list)
    for each in manifest.garbage:
        if (topic_id := segment_topic_id(each.key)) is not None:
            garbage[topic_id].append(each)
    found = {topic_id: _figures(topic) for topic_id, topic in manifest.topics.items()}
    for topic_id, left in garbage.items():
        waiting = ColdFigures(garbage_objects=len(left), garbage_bytes=sum(each.size_bytes for each in left))
        found[topic_id] = found.get(topic_id, ColdFigures()) + waiting
    return found


def _figures(topic: TopicState) -> ColdFigures:
    totals = topic.totals
    offsets, records = (0, 0) if topic.lacks_list else _clean(topic)
    return ColdFigures(
        segments=totals.segments,
        records=totals.records,
        cold_bytes=totals.size_bytes,
        raw_bytes=totals.raw_bytes,
        clean_offsets=offsets,
        clean_records=records,
    )


def _clean(topic: TopicState) -> tuple[int, int]:
    """The offsets that compaction has processed, and the records that are left of them."""
    ends = {number: state.clean_end for number, state in topic.all_partitions.items() if state.clean_end}
    if not ends:
        return 0, 0
    starts = {number: topic.partition(number).log_start_offset for number in ends}
    end_of = np.zeros(max(ends) + 1, np.int64)
    end_of[list(ends)] = list(ends.values())
    columns = topic.segments.columns
    known = columns.partition < len(end_of)
    clean = known & (columns.last_offset < end_of[np.where(known, columns.partition, 0)])
    offsets = sum(max(0, end - starts[number]) for number, end in ends.items())
    return offsets, int(columns.records[clean].sum())
