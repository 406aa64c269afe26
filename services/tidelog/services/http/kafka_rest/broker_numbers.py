"""The numbers that brokers have in Kafka's interfaces. Tidelog names brokers by text."""

from __future__ import annotations

import zlib

from tidelog.services.broker.api.cluster import ClusterStatus

NUMBER_MAX = 2**31 - 1
NO_BROKER = -1


def broker_number(broker_id: str) -> int:
    """The broker id itself if it is a number, otherwise 31 bits of its CRC-32: the same on every broker and after
    every restart."""
    if broker_id.isascii() and broker_id.isdecimal() and int(broker_id) <= NUMBER_MAX:
        return int(broker_id)
    return zlib.crc32(broker_id.encode()) & NUMBER_MAX


def broker_numbers(cluster: ClusterStatus) -> list[int]:
    """The numbers of all brokers, in order."""
    return sorted({broker_number(place.broker_id) for place in cluster.brokers})


def leader_numbers(cluster: ClusterStatus) -> dict[int, int]:
    """The number of the leader of each shard that has one."""
    return {place.shard: broker_number(place.leader) for place in cluster.shards if place.leader is not None}
