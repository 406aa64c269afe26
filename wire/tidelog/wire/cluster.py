"""A broker and its cluster, as ``/v1/cluster`` and ``/readyz`` describe them. Bytes; times in ms since 1970 UTC."""

from __future__ import annotations

import msgspec

from tidelog.wire.counts import Count


class ShardDescription(msgspec.Struct, frozen=True):
    """A shard that the answering broker leads: its epoch, its entries ``[wal_floor, wal_next)``, and the bytes that
    wait for a commit."""

    shard: Count
    leading: bool
    epoch: int
    wal_floor: Count
    wal_next: Count
    wal_bytes: Count
    buffered_bytes: Count
    partitions: Count


class MemberDescription(msgspec.Struct, frozen=True):
    """A broker of the cluster. `shards`: how many it leads. `draining`: it must lead none. `feature_level`: the highest
    that it knows."""

    broker: str
    address: str
    zone: str
    version: str
    started_at_ms: Count
    shards: Count
    draining: bool
    feature_level: Count = 1


class PlacementDescription(msgspec.Struct, frozen=True):
    """Which broker leads a shard in which epoch (None: no broker), and which one should."""

    shard: Count
    leader: str | None
    epoch: int
    preferred: str | None


class MembershipDescription(msgspec.Struct, frozen=True):
    """The cluster as the answering broker sees it. `coordinator` is ``etcd`` or ``embedded``; `trouble` says what is
    wrong with it and what to do; it is empty if nothing is wrong. `feature_level`: what its writers may use."""

    cluster_id: str
    name: str
    coordinator: str
    trouble: str
    brokers: tuple[MemberDescription, ...]
    shards: tuple[PlacementDescription, ...]
    feature_level: Count = 1

    def led_by(self, broker: str) -> int:
        """How many shards `broker` leads."""
        return sum(shard.leader == broker for shard in self.shards)


class DamageDescription(msgspec.Struct, frozen=True):
    """An object of the bucket that is missing or does not hold what was written, and what that stops. `topic` "" and
    `partition` -1: the object belongs to no partition."""

    object: str
    reason: str
    effect: str
    shard: int
    topic: str
    partition: int


class ClusterDescription(msgspec.Struct, frozen=True):
    """A broker's version, its store, the shards it leads, the damaged objects it knows of, and its cluster. `groups`:
    how many it coordinates and has in memory, with how many members."""

    version: str
    store: str
    ready: bool
    reason: str
    buffered_bytes: Count
    groups: Count
    group_members: Count
    shards: tuple[ShardDescription, ...]
    damage: tuple[DamageDescription, ...]
    cluster: MembershipDescription


class HealthAnswer(msgspec.Struct, frozen=True):
    """The answer of a process that lives."""

    status: str


class ReadyAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer of a broker that takes requests. `reason` says which part of its work it cannot do; it serves
    everything but the `damaged_objects`."""

    status: str
    reason: str = ""
    damaged_objects: tuple[str, ...] = ()
