"""Topics whose segments have no objects, for rules that read nothing else. Partitions share segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from tidelog.storage.layout import shard_segment_key
from tidelog.storage.manifests.segment_columns import columns_of
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind, ColdState, SegmentSpan, TopicSegment
from tidelog.storage.manifests.topic_state import ListRef, TopicBase, TopicState
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.upkeep.task import TopicInShard

TOPIC, TOPIC_ID, SHARD = "web", "0" * 32, 3
PLACE = SegmentPlace(TOPIC, TOPIC_ID, SHARD)
RAW_BYTES = 10
"""Of a record of partition 0; one of partition *p* has p + 1 times as many."""

TIMES_MS = st.integers(0, 60)
SIZES_BYTES = st.integers(0, 20)
PARTITIONS = range(3)


@dataclass(frozen=True)
class Pass:
    """A pass of the archiver: records by partition, in one segment."""

    counts: Mapping[int, int]
    max_timestamp_ms: int = 0
    size_bytes: int = 1
    raw_bytes: int = RAW_BYTES


def dense(passes: Sequence[Pass], log_starts: Mapping[int, int] | None = None, listed: int = 0) -> TopicState:
    """The topic after these passes, the first `listed` of them in a stored list. A log start counts up to the cold
    end."""
    ends: dict[int, int] = {}
    segments = [_segment(run, made, ends) for run, made in enumerate(passes)]
    starts = log_starts or {}
    states = {number: ColdState(min(starts.get(number, 0), end), end) for number, end in sorted(ends.items())}
    stored = ListRef("list", "0" * 64, 1, listed) if listed else None
    base = TopicBase(columns_of(segments[:listed]), states)
    return TopicState(TOPIC, len(passes), stored, base, added=columns_of(segments[listed:]))


def _segment(run: int, made: Pass, ends: dict[int, int]) -> TopicSegment:
    spans = []
    for number, count in sorted(made.counts.items()):
        begin = ends.get(number, 0)
        ends[number] = begin + count
        spans.append(SegmentSpan(number, begin, begin + count - 1, count, count * made.raw_bytes * (number + 1)))
    key = shard_segment_key(TOPIC, TOPIC_ID, SHARD, f"{run:032x}")
    times_ms = (min(0, made.max_timestamp_ms), made.max_timestamp_ms, 0)
    return TopicSegment(key, run, 0, made.size_bytes, f"{run:064x}", *times_ms, tuple(spans))


def passes_of(topic: TopicState) -> ManifestChange:
    """The change by which a shard gets this topic."""
    change = TopicChange(TOPIC, added=tuple(topic.segments), partitions=topic.all_partitions)
    return ManifestChange(ChangeKind.ARCHIVE, {TOPIC_ID: change})


def last_pass_of(topic: TopicState) -> ManifestChange:
    """The change by which a shard with all earlier passes gets the last one."""
    added = tuple(topic.segments)[-1]
    states = {span.partition: topic.partition(span.partition) for span in added.spans}
    return ManifestChange(ChangeKind.ARCHIVE, {TOPIC_ID: TopicChange(TOPIC, added=(added,), partitions=states)})


def seen(topic: TopicState) -> TopicInShard:
    return TopicInShard(PLACE, ShardManifest(SHARD, 0, topics={TOPIC_ID: topic}))


def runs(topic: TopicState) -> list[int]:
    """Which passes' segments are listed."""
    return [segment.run for segment in topic.segments]


def log_starts(topic: TopicState) -> dict[int, int]:
    return {number: state.log_start_offset for number, state in topic.all_partitions.items()}


_PASSES = st.builds(
    Pass,
    st.dictionaries(st.sampled_from(PARTITIONS), st.integers(1, 5), min_size=1),
    TIMES_MS,
    SIZES_BYTES,
    st.sampled_from([0, 1, RAW_BYTES]),
)

TOPICS = st.lists(_PASSES, max_size=8).flatmap(
    lambda passes: st.builds(
        dense,
        st.just(passes),
        st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 40)),
        st.integers(0, len(passes)),
    )
)
