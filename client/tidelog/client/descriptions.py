"""What a broker tells of topics, partitions and itself, as values. Decoded from the answers of ``docs/http-api.md``.

Sizes in bytes, times in ms since 1970 UTC. Fields that a newer broker adds are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PartitionDescription:
    """Offsets of one partition: records are in ``[log_start_offset, high_watermark)``, cold below `cold_end`."""

    partition: int
    shard: int
    log_start_offset: int
    cold_end: int
    high_watermark: int

    @property
    def records(self) -> int:
        return self.high_watermark - self.log_start_offset


@dataclass(frozen=True)
class TopicDescription:
    """A topic; `configs` under Kafka's names."""

    name: str
    topic_id: str
    partitions: tuple[PartitionDescription, ...]
    configs: Mapping[str, str | int | None] = field(default_factory=dict)
    created_at_ms: int = 0

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions)


@dataclass(frozen=True)
class ListedPartition:
    """A partition in a list of topics. Offsets are None unless the list was asked for with details."""

    partition: int
    shard: int
    log_start_offset: int | None = None
    cold_end: int | None = None
    high_watermark: int | None = None


@dataclass(frozen=True)
class ListedTopic:
    """A topic in a list."""

    name: str
    topic_id: str
    partitions: tuple[ListedPartition, ...]
    configs: Mapping[str, str | int | None] = field(default_factory=dict)
    created_at_ms: int = 0

    @property
    def records(self) -> int | None:
        """How many there are, None if the list does not tell."""
        counts = [
            partition.high_watermark - partition.log_start_offset
            for partition in self.partitions
            if partition.high_watermark is not None and partition.log_start_offset is not None
        ]
        return sum(counts) if len(counts) == len(self.partitions) else None


@dataclass(frozen=True)
class SegmentDescription:
    """One cold Parquet object of a partition."""

    key: str
    base_offset: int
    last_offset: int
    records: int
    size_bytes: int
    min_timestamp: int
    max_timestamp: int


@dataclass(frozen=True)
class PartitionLogDescription:
    """One consistent picture: `segments` hold ``[log_start_offset, cold_end)``, the broker the rest."""

    topic: str
    topic_id: str
    partition: int
    shard: int
    log_start_offset: int
    cold_end: int
    high_watermark: int
    manifest_version: int
    store: str
    segments: tuple[SegmentDescription, ...]


@dataclass(frozen=True)
class ShardDescription:
    """One write-ahead log: its leader's epoch, where it begins and goes on, what waits for its commit."""

    shard: int
    leading: bool = True
    epoch: int = 0
    wal_floor: int = 0
    wal_next: int = 0
    wal_bytes: int = 0
    buffered_bytes: int = 0
    partitions: int = 0


@dataclass(frozen=True)
class MemberDescription:
    """A broker of the cluster. `shards`: how many it leads; `draining`: it is to lead none."""

    broker: str
    address: str
    zone: str = ""
    version: str = ""
    started_at_ms: int = 0
    shards: int = 0
    draining: bool = False


@dataclass(frozen=True)
class PlacementDescription:
    """Who leads a shard in which epoch (None: nobody), and who should."""

    shard: int
    leader: str | None = None
    epoch: int = 0
    preferred: str | None = None


@dataclass(frozen=True)
class MembershipDescription:
    """The cluster as the asked broker sees it. `coordinator` is ``etcd`` or ``embedded``; `trouble` says what is wrong
    with it and what to do."""

    cluster_id: str = ""
    name: str = ""
    coordinator: str = "embedded"
    trouble: str = ""
    brokers: tuple[MemberDescription, ...] = ()
    shards: tuple[PlacementDescription, ...] = ()

    def led_by(self, broker: str) -> int:
        """How many shards `broker` leads."""
        return sum(shard.leader == broker for shard in self.shards)


@dataclass(frozen=True)
class DamageDescription:
    """An object of the bucket that is missing or does not hold what was written, and what that stops. `topic` "" and
    `partition` -1: it is of none."""

    object: str
    reason: str = ""
    effect: str = ""
    shard: int = -1
    topic: str = ""
    partition: int = -1


@dataclass(frozen=True)
class ClusterDescription:
    """A broker's version, its store, the shards it leads, the damaged objects it knows of, and the cluster it is of."""

    version: str
    store: str
    shards: tuple[ShardDescription, ...]
    ready: bool = True
    reason: str = ""
    cluster: MembershipDescription = field(default_factory=MembershipDescription)
    damage: tuple[DamageDescription, ...] = ()


@dataclass(frozen=True)
class Health:
    """`alive`: the process answers; `ready`: it takes requests; `reason` says why not. `damaged_objects` of its shards
    are those it knows of; it serves the rest."""

    alive: bool
    ready: bool
    reason: str = ""
    damaged_objects: tuple[str, ...] = ()
