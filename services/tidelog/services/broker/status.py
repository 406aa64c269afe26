"""How a broker stands, for `/readyz`, `/v1/cluster` and `tidelog cluster info`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from tidelog.services.broker.api import BrokerStatus, ShardStatus
from tidelog.services.broker.shard_leader import ShardLeader

VERSION = version("tidelog")


def broker_status(store_url: str, leaders: Sequence[ShardLeader], not_ready: str | None) -> BrokerStatus:
    """Ready if it takes requests and leads every shard; else the first reason why not."""
    down = [leader.down.reason for leader in leaders if leader.down]
    reason = not_ready or (down[0] if down else "")
    return BrokerStatus(VERSION, store_url, not reason, reason, tuple(_shard_status(leader) for leader in leaders))


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
    )
