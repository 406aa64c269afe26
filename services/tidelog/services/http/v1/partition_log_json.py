"""The answer of ``GET …/log`` as JSON: written by the route, read back by a peer."""

from __future__ import annotations

import msgspec

from tidelog.services.broker.api.fetch import PartitionLog
from tidelog.storage.manifests.manifest import Segment


class SegmentJson(msgspec.Struct):
    """One cold segment."""

    key: str
    base_offset: int
    last_offset: int
    records: int
    size_bytes: int
    min_timestamp: int
    max_timestamp: int
    sha256: str


class PartitionLogJson(msgspec.Struct):
    """What a direct reader of the bucket needs."""

    topic: str
    topic_id: str
    partition: int
    shard: int
    log_start_offset: int
    cold_end: int
    high_watermark: int
    manifest_version: int
    store: str
    segments: tuple[SegmentJson, ...]


def partition_log_json(log: PartitionLog) -> PartitionLogJson:
    segments = tuple(
        SegmentJson(
            segment.key,
            segment.base_offset,
            segment.last_offset,
            segment.records,
            segment.size_bytes,
            segment.min_timestamp_ms,
            segment.max_timestamp_ms,
            segment.sha256,
        )
        for segment in log.segments
    )
    return PartitionLogJson(
        topic=log.topic,
        topic_id=log.topic_id,
        partition=log.partition,
        shard=log.shard,
        log_start_offset=log.log_start_offset,
        cold_end=log.cold_end,
        high_watermark=log.high_watermark,
        manifest_version=log.manifest_version,
        store=log.store_url,
        segments=segments,
    )


def partition_log_of(log: PartitionLogJson) -> PartitionLog:
    """The value that a peer's broker gave."""
    return PartitionLog(
        topic=log.topic,
        topic_id=log.topic_id,
        partition=log.partition,
        shard=log.shard,
        log_start_offset=log.log_start_offset,
        cold_end=log.cold_end,
        high_watermark=log.high_watermark,
        manifest_version=log.manifest_version,
        segments=tuple(
            Segment(
                s.key,
                s.base_offset,
                s.last_offset,
                s.records,
                s.size_bytes,
                s.min_timestamp,
                s.max_timestamp,
                s.sha256,
            )
            for s in log.segments
        ),
        store_url=log.store,
    )
