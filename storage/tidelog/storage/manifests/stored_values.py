"""The stored form of segments and partition states, as JSON arrays and objects.

Readers ignore fields that they do not know, and elements after the last that they know; writers only ever append. So a
newer broker may store more than an older one reads.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from tidelog.storage.layout import TopicPartition, shard_segment_id, shard_segment_key
from tidelog.storage.manifests.losses import Loss
from tidelog.storage.manifests.shard_chain import Recorded, TopicStep
from tidelog.storage.manifests.shard_values import (
    ChangeKind,
    Cleaning,
    ColdState,
    KnownProducer,
    LeaderEpoch,
    SegmentSpan,
    TopicSegment,
)
from tidelog.storage.wal.wal_entry import ProducerMark

Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class StoredSpan(msgspec.Struct, array_like=True):
    partition: Natural
    base_offset: Natural
    last_offset: Natural
    records: Natural
    raw_bytes: Natural


class StoredSegment(msgspec.Struct, array_like=True):
    """`id` is the last part of the segment's key."""

    id: str
    run: Natural
    level: Natural
    size_bytes: Natural
    sha256: str
    min_timestamp_ms: int
    max_timestamp_ms: int
    archived_at_ms: Natural
    spans: Annotated[list[StoredSpan], msgspec.Meta(min_length=1)]


class _Loss(msgspec.Struct, array_like=True):
    first_offset: Natural
    next_offset: Natural
    key: str
    at_ms: int


class _Mark(msgspec.Struct, array_like=True):
    producer_id: str
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    base_offset: Natural
    archived_at_ms: Natural


class StoredState(msgspec.Struct, omit_defaults=True):
    """Most partitions have only the two offsets."""

    cold_end: Natural
    log_start_offset: Natural = 0
    clean_end: Natural = 0
    cleanings: tuple[tuple[Natural, int], ...] = ()
    losses: tuple[_Loss, ...] = ()
    epochs: tuple[tuple[Natural, Natural], ...] = ()
    producers: tuple[_Mark, ...] = ()


class StoredTopicStep(msgspec.Struct, array_like=True):
    removed: tuple[str, ...]
    added: tuple[str, ...]
    offsets: tuple[tuple[Natural, Natural, Natural, Natural], ...]


class StoredRecorded(msgspec.Struct):
    kind: ChangeKind
    topics: dict[str, StoredTopicStep]


def stored_recorded(recorded: Recorded) -> StoredRecorded:
    steps = sorted(recorded.topics.items())
    return StoredRecorded(
        recorded.kind, {topic_id: StoredTopicStep(step.removed, step.added, step.offsets) for topic_id, step in steps}
    )


def recorded_of(stored: StoredRecorded) -> Recorded:
    """The part of a change that `stored` describes."""
    topics = stored.topics.items()
    return Recorded(
        stored.kind, {topic_id: TopicStep(step.removed, step.added, step.offsets) for topic_id, step in topics}
    )


def stored_segment(segment: TopicSegment) -> StoredSegment:
    return StoredSegment(
        shard_segment_id(segment.key),
        segment.run,
        segment.level,
        segment.size_bytes,
        segment.sha256,
        segment.min_timestamp_ms,
        segment.max_timestamp_ms,
        segment.archived_at_ms,
        [
            StoredSpan(span.partition, span.base_offset, span.last_offset, span.records, span.raw_bytes)
            for span in segment.spans
        ],
    )


def segment_of(stored: StoredSegment, topic: str, topic_id: str, shard: int) -> TopicSegment:
    """The segment of `topic` that `stored` describes."""
    return TopicSegment(
        shard_segment_key(topic, topic_id, shard, stored.id),
        stored.run,
        stored.level,
        stored.size_bytes,
        stored.sha256,
        stored.min_timestamp_ms,
        stored.max_timestamp_ms,
        stored.archived_at_ms,
        tuple(
            SegmentSpan(span.partition, span.base_offset, span.last_offset, span.records, span.raw_bytes)
            for span in stored.spans
        ),
    )


def stored_state(state: ColdState) -> StoredState:
    return StoredState(
        cold_end=state.cold_end,
        log_start_offset=state.log_start_offset,
        clean_end=state.clean_end,
        cleanings=tuple((each.end_offset, each.at_ms) for each in state.cleanings),
        losses=tuple(_Loss(loss.first_offset, loss.next_offset, loss.key, loss.at_ms) for loss in state.losses),
        epochs=tuple((each.epoch, each.first_offset) for each in state.epochs),
        producers=tuple(
            _Mark(
                *(each.mark.producer_id, each.mark.producer_epoch, each.mark.first_sequence),
                *(each.mark.last_sequence, each.mark.base_offset, each.archived_at_ms),
            )
            for each in state.producers
        ),
    )


def state_of(stored: StoredState, place: TopicPartition) -> ColdState:
    """The state of partition `place` that `stored` describes."""
    return ColdState(
        log_start_offset=stored.log_start_offset,
        cold_end=stored.cold_end,
        clean_end=stored.clean_end,
        cleanings=tuple(Cleaning(*each) for each in stored.cleanings),
        losses=tuple(Loss(loss.first_offset, loss.next_offset, loss.key, loss.at_ms) for loss in stored.losses),
        epochs=tuple(LeaderEpoch(*each) for each in stored.epochs),
        producers=tuple(
            KnownProducer(
                ProducerMark(
                    *(place, mark.producer_id, mark.producer_epoch),
                    *(mark.first_sequence, mark.last_sequence, mark.base_offset),
                ),
                mark.archived_at_ms,
            )
            for mark in stored.producers
        ),
    )
