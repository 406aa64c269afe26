"""The stored form of segments and partition states, as JSON arrays and objects.

Readers ignore fields that they do not know, and elements after the last that they know; writers only ever append. So a
newer broker may store more than an older one reads.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from tidelog.storage.layout import TopicPartition, shard_segment_id, shard_segment_key
from tidelog.storage.manifests.json_envelope import Natural
from tidelog.storage.manifests.losses import Loss
from tidelog.storage.manifests.shard_values import (
    Cleaning,
    ColdState,
    KnownProducer,
    LeaderEpoch,
    SegmentSpan,
    TopicSegment,
)
from tidelog.storage.wal.wal_entry import ProducerMark


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
    spans: Annotated[tuple[SegmentSpan, ...], msgspec.Meta(min_length=1)]


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
    cleanings: tuple[Cleaning, ...] = ()
    losses: tuple[Loss, ...] = ()
    epochs: tuple[LeaderEpoch, ...] = ()
    producers: tuple[_Mark, ...] = ()


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
        tuple(segment.spans),
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
        stored.spans,
    )


def stored_state(state: ColdState) -> StoredState:
    return StoredState(
        cold_end=state.cold_end,
        log_start_offset=state.log_start_offset,
        clean_end=state.clean_end,
        cleanings=state.cleanings,
        losses=state.losses,
        epochs=state.epochs,
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
        cleanings=stored.cleanings,
        losses=stored.losses,
        epochs=stored.epochs,
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
