"""Topics and partitions as the calls under ``/v1/topics`` describe them. Times in ms since 1970 UTC, sizes in bytes."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidelog.wire.counts import Count


class PartitionDescription(msgspec.Struct, frozen=True):
    """Offsets of one partition: records are in ``[log_start_offset, high_watermark)``, cold below `cold_end`."""

    partition: Count
    shard: Count
    log_start_offset: Count
    cold_end: Count
    high_watermark: Count

    @property
    def records(self) -> int:
        return self.high_watermark - self.log_start_offset


class TopicDescription(msgspec.Struct, frozen=True):
    """A topic; `configs` under Kafka's names."""

    name: str
    topic_id: str
    partitions: tuple[PartitionDescription, ...]
    configs: Mapping[str, str]
    created_at_ms: int

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions)


class ListedPartition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A partition in a list of topics. The offsets are there only in a list with details."""

    partition: Count
    shard: Count
    log_start_offset: Count | None = None
    cold_end: Count | None = None
    high_watermark: Count | None = None


class ListedTopic(msgspec.Struct, frozen=True):
    """A topic in a list."""

    name: str
    topic_id: str
    partitions: tuple[ListedPartition, ...]
    configs: Mapping[str, str]
    created_at_ms: int

    @property
    def records(self) -> int | None:
        """How many there are; None if the list does not have the offsets."""
        counts = [
            partition.high_watermark - partition.log_start_offset
            for partition in self.partitions
            if partition.high_watermark is not None and partition.log_start_offset is not None
        ]
        return sum(counts) if len(counts) == len(self.partitions) else None


class FailedTopic(msgspec.Struct, frozen=True):
    """Why the offsets of a topic are missing from a list; `code` as in the table of errors."""

    topic: str
    code: str
    detail: str


class TopicPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One page of topics by name. `next` is the value of `after` for the next page; None on the last page."""

    topics: tuple[ListedTopic, ...]
    next: str | None = None
    failed: tuple[FailedTopic, ...] = ()


class OffsetAnswer(msgspec.Struct, frozen=True):
    """The offset that a position stands for now."""

    offset: Count


class ResolvedOffset(msgspec.Struct, frozen=True):
    """The offset that a position stands for in one partition."""

    partition: Count
    offset: Count


class ResolvedOffsets(msgspec.Struct, frozen=True):
    """The offset that a position stands for now in each partition of a topic that was asked for."""

    partitions: tuple[ResolvedOffset, ...]

    def by_partition(self) -> dict[int, int]:
        return {each.partition: each.offset for each in self.partitions}


class LogStartAnswer(msgspec.Struct, frozen=True):
    """Where a partition's log begins after a delete-records."""

    log_start_offset: Count
