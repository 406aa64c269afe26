"""Values of a cluster: which broker leads which shard, and in which state brokers and shards are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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


@dataclass(frozen=True, order=True)
class Damage:
    """The object `key` is missing or does not contain what was written; `effect` says what that stops. `shard` -1,
    `topic` "" and `partition` -1: it belongs to none."""

    key: str
    reason: str
    effect: str
    shard: int = -1
    topic: str = ""
    partition: int = -1


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
