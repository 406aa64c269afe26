"""The numbers that brokers have in Kafka's interfaces: the same ids over REST as over Kafka's protocol. Tidelog names
brokers by text, and a broker's membership record holds its number."""

from __future__ import annotations

from tidelog.services.broker.api.cluster import ClusterStatus

NO_BROKER = -1


def broker_numbers(cluster: ClusterStatus) -> list[int]:
    """The numbers of all brokers, in order. A broker of an earlier version has none."""
    return sorted({place.node_id for place in cluster.brokers} - {NO_BROKER})


def leader_numbers(cluster: ClusterStatus) -> dict[int, int]:
    """The number of the leader of each shard that has one."""
    numbers = {place.broker_id: place.node_id for place in cluster.brokers}
    return {place.shard: numbers[place.leader] for place in cluster.shards if place.leader in numbers}
