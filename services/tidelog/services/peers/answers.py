"""The JSON answers of a peer, as far as `Peers` needs them."""

from __future__ import annotations

import msgspec

from tidelog.services.broker.api import PartitionLog
from tidelog.storage.manifest import Segment


class AppendedAnswer(msgspec.Struct):
    """Where the records of one partition went."""

    partition: int
    base_offset: int | None
    count: int
    timestamp: int
    duplicate: bool = False


class ProduceAnswer(msgspec.Struct):
    """Of ``POST …/records``; a request for one partition has one."""

    partitions: tuple[AppendedAnswer]


class OffsetAnswer(msgspec.Struct):
    """Of ``GET …/offset``."""

    offset: int


class SegmentAnswer(msgspec.Struct):
    """One cold segment."""

    key: str
    base_offset: int
    last_offset: int
    records: int
    size_bytes: int
    min_timestamp: int
    max_timestamp: int
    sha256: str


class LogAnswer(msgspec.Struct):
    """Of ``GET …/log``."""

    topic: str
    topic_id: str
    partition: int
    shard: int
    log_start_offset: int
    cold_end: int
    high_watermark: int
    manifest_version: int
    store: str
    segments: tuple[SegmentAnswer, ...]


def partition_log_of(log: LogAnswer) -> PartitionLog:
    """The value that the peer's broker gave."""
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
