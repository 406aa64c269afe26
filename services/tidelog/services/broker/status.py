"""The state of a broker, for `/readyz`, `/v1/cluster` and `tidelog cluster info`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from tidelog.services.broker.api.cluster import (
    BrokerPlace,
    BrokerStatus,
    ClusterStatus,
    Damage,
    ShardPlace,
    ShardStatus,
)
from tidelog.services.broker.shard.shard_leader import ShardLeader
from tidelog.services.settings.settings import Settings
from tidelog.storage.formats import FEATURE_LEVEL

VERSION = version("tidelog")
SOLE_NODE_ID = 0
"""The node id of a broker without a cluster."""


def broker_status(
    store_url: str, leaders: Sequence[ShardLeader], not_ready: str | None, damages: Sequence[Damage]
) -> BrokerStatus:
    """Ready if it accepts requests and every shard of `leaders` is led; otherwise the first reason. Damaged objects do
    not make it unready, because it serves the rest."""
    reason = not_ready or next(filter(None, map(_trouble, leaders)), "")
    shards = tuple(_shard_status(leader) for leader in leaders)
    led = {shard.shard for shard in shards}
    found = [damage for damage in damages if damage.shard in led]
    return BrokerStatus(VERSION, store_url, not reason, reason, shards, found)


def sole_broker_id(settings: Settings) -> str:
    return settings.broker_id or "broker"


def sole_cluster(settings: Settings, status: BrokerStatus, feature_level: int) -> ClusterStatus:
    broker_id = sole_broker_id(settings)
    led = sum(shard.leading for shard in status.shards)
    address, zone = settings.own_address, settings.broker_zone
    place = BrokerPlace(
        broker_id, address, zone, status.version, 0, led, False, FEATURE_LEVEL, SOLE_NODE_ID, settings.own_listeners
    )
    shards = [ShardPlace(s.shard, broker_id if s.leading else None, s.epoch, broker_id) for s in status.shards]
    return ClusterStatus("", settings.cluster_name, "embedded", "", (place,), shards, feature_level)


def _trouble(leader: ShardLeader) -> str:
    """Why nothing can be committed to the shard; empty if it can."""
    if leader.down:
        return leader.down.reason
    if denied := leader.retries.denied:
        return f"the store refuses the commits of shard {leader.shard}; the broker retries: {denied}"
    return ""


def _shard_status(leader: ShardLeader) -> ShardStatus:
    return ShardStatus(
        shard=leader.shard,
        leading=leader.down is None,
        epoch=leader.epoch,
        wal_floor=leader.extent.floor,
        wal_next=leader.next_seq,
        wal_bytes=leader.extent.bytes,
        buffered_bytes=leader.buffered_bytes,
        partitions=len(leader.partitions),
        denied_s=leader.retries.denied_s,
    )
