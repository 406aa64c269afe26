"""What a broker does for whoever speaks to it, as values and one Protocol: the seam between HTTP and the log.

Everything here is Arrow in and Arrow out; a transport only decodes bodies and encodes answers. Errors are those of
`tidelog.storage.errors`; each method names the ones a caller has to expect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import pyarrow as pa

from tidelog.coordinator.topic import Topic
from tidelog.services.broker.costs import BrokerCosts
from tidelog.services.broker.damages import Damage
from tidelog.storage.manifests.manifest import Segment


class Acks(Enum):
    """When a produce is answered: at once, once in the leader's memory, once committed on the bucket."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"


@dataclass(frozen=True)
class ProducerSequence:
    """Makes a retry append at most once (inv. 7): the batch's first record has `first_sequence`, the next one more."""

    producer_id: str
    producer_epoch: int
    first_sequence: int


@dataclass(frozen=True)
class Draft:
    """Records to append. `records` has `records.DRAFT_SCHEMA`; `partitions` (int32, a null: let the broker choose)
    goes with them row by row, or is None when no row names one. `body_bytes` is the memory they keep alive."""

    records: pa.Table
    partitions: pa.ChunkedArray[pa.Int32Scalar] | None
    body_bytes: int


@dataclass(frozen=True)
class ProduceOptions:
    """`partition` sends all records to one partition; `expected_offset` and `producer` need it."""

    acks: Acks = Acks.ALL
    partition: int | None = None
    expected_offset: int | None = None
    producer: ProducerSequence | None = None
    auto_create: bool = True


@dataclass(frozen=True)
class Appended:
    """Where records of a request went. `base_offset` is None for `Acks.NONE`; `timestamp_ms` is the append time under
    LogAppendTime, else the largest timestamp of the batch; `duplicate` tells that it was in the log already."""

    partition: int
    base_offset: int | None
    count: int
    timestamp_ms: int
    duplicate: bool = False


class Anchor(Enum):
    """From what a start position counts."""

    OFFSET = "offset"
    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp"
    FROM_END = "from_end"


@dataclass(frozen=True)
class Position:
    """Where to start reading. `value`: the offset, the time in ms, or how many records before the end."""

    anchor: Anchor
    value: int = 0


@dataclass(frozen=True)
class FetchLimits:
    """At least one record is returned if there is one, however large. `wait_ms`: how long to wait for the first. Not
    `fresh`: without a proof that who answers still leads the shard, so that the end may be an older one."""

    max_records: int
    max_bytes: int
    wait_ms: int = 0
    fresh: bool = True


@dataclass(frozen=True)
class Fetched:
    """`batches` have `records.RECORD_SCHEMA`; reading goes on at `next_offset`. `high_watermark` is the end that is
    known to the broker that answers. Beside records it may be an older one; a broker that reads cold records without
    the leader knows the cold end alone."""

    batches: Sequence[pa.RecordBatch]
    next_offset: int
    log_start_offset: int
    high_watermark: int


@dataclass(frozen=True)
class PartitionLog:
    """One consistent picture of a partition: segments hold ``[log_start_offset, cold_end)``, the broker's hot tail
    ``[cold_end, high_watermark)``."""

    topic: str
    topic_id: str
    partition: int
    shard: int
    log_start_offset: int
    cold_end: int
    high_watermark: int
    manifest_version: int
    segments: Sequence[Segment]
    store_url: str


@dataclass(frozen=True)
class Leader:
    """The broker that leads a shard. `address`: ``http://HOST:PORT``."""

    broker_id: str
    address: str


@dataclass(frozen=True)
class Route:
    """Where requests for a partition go: here if `local`, else to `leader`; to nobody while that is None."""

    shard: int
    local: bool
    leader: Leader | None = None


@dataclass(frozen=True)
class ShardStatus:
    """A shard as `tidelog cluster info` shows it. Sizes in bytes, ages in seconds. `denied_s`: for how long the store
    has refused its commits; 0 while it does not."""

    shard: int
    leading: bool
    epoch: int
    wal_floor: int
    wal_next: int
    wal_bytes: int
    buffered_bytes: int
    partitions: int
    denied_s: float = 0.0


@dataclass(frozen=True)
class BrokerStatus:
    """Whether this broker can take requests, the state of what it leads, and which objects of that are damaged."""

    version: str
    store_url: str
    ready: bool
    reason: str
    shards: Sequence[ShardStatus]
    damages: Sequence[Damage] = ()


@dataclass(frozen=True)
class BrokerPlace:
    """A broker of the cluster. `shards`: how many it leads; `draining`: it is to lead none."""

    broker_id: str
    address: str
    zone: str
    version: str
    started_at_ms: int
    shards: int
    draining: bool


@dataclass(frozen=True)
class ShardPlace:
    """A shard of the cluster: who leads it in which epoch (None: nobody), and who should."""

    shard: int
    leader: str | None
    epoch: int
    preferred: str | None


@dataclass(frozen=True)
class ClusterStatus:
    """The cluster as one broker sees it. `coordinator` is ``etcd`` or ``embedded``; `trouble` says what is wrong with
    it and what to do, empty if nothing is."""

    cluster_id: str
    name: str
    coordinator: str
    trouble: str
    brokers: Sequence[BrokerPlace]
    shards: Sequence[ShardPlace]


class Broker(Protocol):
    """One broker's service. Every call may run at the same time as every other.

    In a cluster any broker takes any call and sends it on to the leader where it must. A call on a partition raises
    `LeaderUnknown` or `NotLeader` if none was found within ``forward.timeout.ms``: nothing was taken."""

    @property
    def here(self) -> Broker:
        """The same broker without its peers: what came from another broker is answered by this, and a partition led
        elsewhere refused with `NotLeader` or `LeaderUnknown`, so that nothing is sent on twice."""
        ...

    async def create_topic(self, name: str, partitions: int | None, configs: Mapping[str, str | int | None]) -> Topic:
        """Raises `AlreadyExists`, `Invalid`, `Unavailable`. `partitions` None: the broker's `num.partitions`."""
        ...

    async def alter_topic(self, name: str, partitions: int | None, configs: Mapping[str, str | int | None]) -> Topic:
        """Change configs (None puts a default back) and, where `partitions` is given, add partitions.
        Raises `NotFound`, `Invalid` (as fewer partitions than now)."""
        ...

    async def delete_topic(self, name: str) -> None:
        """Raises `NotFound`."""
        ...

    def topic(self, name: str) -> Topic:
        """As far as is known here: raises `NotFound`, `Invalid` (a name no topic can have). A topic that another broker
        made a moment ago is found by `known_topic`."""
        ...

    async def known_topic(self, name: str) -> Topic:
        """As `topic`; in a cluster the journal is read on before it says `NotFound`. Raises `Unavailable` too."""
        ...

    def topics(self) -> Sequence[Topic]:
        """All topics by name."""
        ...

    async def produce(self, topic: str, draft: Draft, options: ProduceOptions) -> Sequence[Appended]:
        """Append; answers as `options.acks` says. All checks come before anything is taken (inv. 10).
        Raises `NotFound`, `Invalid`, `TooLarge`, `OffsetConflict`, `SequenceConflict`, `ProducerFenced`, `Overloaded`
        (nothing taken), `Fenced`, `Unavailable` (outcome unknown)."""
        ...

    async def resolve(self, topic: str, partition: int, position: Position, *, fresh: bool = True) -> int:
        """The offset of `position` now. TIMESTAMP gives the first record at or after it, else the high watermark.
        Linearizable; not `fresh`: as the leader knows it, which may be older. Raises `NotFound`, `Unavailable`; an
        OFFSET passes through unchecked."""
        ...

    async def fetch(self, topic: str, partition: int, offset: int, limits: FetchLimits) -> Fetched:
        """Committed records from `offset` on (inv. 1). An answer without records is linearizable: at a moment of the
        call the log ended there. Raises `OutOfRange`, `NotFound`, `Unavailable`, `Corrupt`."""
        ...

    async def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Delete what is below `before_offset`; -1: all that is committed now. Returns the log start offset then, which
        is a higher one if the log begins there already. Running again is always right. Raises `OutOfRange` beyond the
        high watermark, `Invalid`, `NotFound`, `Unavailable`, `Corrupt`."""
        ...

    async def partition_log(self, topic: str, partition: int, *, fresh: bool = True) -> PartitionLog:
        """What a direct reader needs, in one consistent answer. Its end is linearizable. Not `fresh`: as the leader
        knows it, without a proof that it still leads, and without a look at the bucket, where another worker may have
        merged segments. Raises `NotFound`, `Unavailable`."""
        ...

    def status(self) -> BrokerStatus:
        """Never blocks, never raises."""
        ...

    def route(self, topic: str, partition: int) -> Route:
        """Where produces and hot reads of a partition go now. Raises `NotFound`, `Invalid`."""
        ...

    async def route_fetch(self, topic: str, partition: int, offset: int) -> Route:
        """As `route`, but local as well where `offset` is cold: segments are read from the bucket by any broker.
        Raises `NotFound`, `Invalid`."""
        ...

    def hears_of_leaders(self) -> bool:
        """Whether this broker would hear of a new leader now: not while it cannot reach etcd."""
        ...

    async def routes_changed(self, timeout_s: float) -> None:
        """Return when some route may have changed, or after `timeout_s`."""
        ...

    def cluster(self) -> ClusterStatus:
        """Never blocks, never raises."""
        ...

    async def costs(self) -> BrokerCosts:
        """What this broker has asked of the store since it started, and what lies there of the shards that it leads.
        Reads the manifests that it does not know yet. Raises `Unavailable`, `Corrupt`."""
        ...

    async def drain(self, broker_id: str, *, undo: bool = False) -> None:
        """Let a broker lead nothing from now on, until it starts again or the drain is undone; returns once that is
        written down, the shards follow. Raises `NotFound`, `Unavailable`, `Invalid` (a broker alone)."""
        ...
