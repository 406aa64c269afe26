"""Values that describe a cluster: which broker leads which shard, and the state of brokers and shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Leader:
    """The broker that leads a shard. `address`: ``http://HOST:PORT``. `node_id`: its number in Kafka's protocol, -1 if
    it has none, because it is of an earlier version. `listeners`: where clients of that protocol reach it,
    ``HOST:PORT`` by the name of the listener."""

    broker_id: str
    address: str
    node_id: int = -1
    listeners: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Route:
    """Where requests for a partition go: here if `local`, otherwise to `leader`; None while no leader is known.
    `epoch`: in which it leads the shard, -1 if that is unknown; each leader has a higher one than those before it."""

    shard: int
    local: bool
    leader: Leader | None = None
    epoch: int = -1


@dataclass(frozen=True)
class EpochEnd:
    """The records of leader epoch `epoch`, and of all before it, end at `end_offset`. Both are -1 if the epoch that was
    asked for has not begun."""

    epoch: int
    end_offset: int


@dataclass(frozen=True)
class ShardStatus:
    """A shard in `tidelog cluster info`. `denied_s`: for how long the store has refused its commits, 0 if it does
    not."""

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
    `topic` "" and `partition` -1: it belongs to none. `newer`: it is whole, and a later version of Tidelog wrote it."""

    key: str
    reason: str
    effect: str
    shard: int = -1
    topic: str = ""
    partition: int = -1
    newer: bool = False


@dataclass(frozen=True)
class BrokerStatus:
    """Whether this broker accepts requests, the shards that it leads, and their damaged objects. `reason` says why it
    does not accept requests, or which part of its work it cannot do. `groups`: how many it coordinates and has in
    memory; `group_members` were counted within the last seconds. `node_id`: this broker's number in Kafka's
    protocol."""

    version: str
    store_url: str
    ready: bool
    reason: str
    shards: Sequence[ShardStatus]
    damages: Sequence[Damage] = ()
    groups: int = 0
    group_members: int = 0
    node_id: int = 0


@dataclass(frozen=True)
class BrokerPlace:
    """A broker of the cluster. `shards`: how many it leads; `draining`: it must lead none; `feature_level`: the highest
    that it knows; `node_id` and `listeners` as in `Leader`."""

    broker_id: str
    address: str
    zone: str
    version: str
    started_at_ms: int
    shards: int
    draining: bool
    feature_level: int = 1
    node_id: int = -1
    listeners: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class ShardPlace:
    """A shard of the cluster: its leader (None: nobody) and epoch, and the broker that should lead it."""

    shard: int
    leader: str | None
    epoch: int
    preferred: str | None


@dataclass(frozen=True)
class ClusterStatus:
    """The cluster as one broker sees it. `coordinator`: ``etcd`` or ``embedded``; `trouble`: its problem and what to
    do, empty if there is none; `feature_level`: what its writers may use."""

    cluster_id: str
    name: str
    coordinator: str
    trouble: str
    brokers: Sequence[BrokerPlace]
    shards: Sequence[ShardPlace]
    feature_level: int = 1
