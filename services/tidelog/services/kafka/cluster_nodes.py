"""The cluster as clients of Kafka's protocol see it: brokers with numbers and addresses, and the leader of each shard.

Clients are told the addresses of the listener that they came in by. A broker that does not have that listener is not
among the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.services.broker.api.cluster import BrokerPlace, Route
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.kafka.service import KafkaService

NO_NODE = -1
NO_EPOCH = -1
SOLE_CLUSTER_ID = "tidelog"
"""The id of the cluster of a broker alone, which has none."""
_NO_ZONE = "none"
"""The default of ``broker.zone``."""


@dataclass(frozen=True)
class Node:
    """A broker. `rack`: its zone."""

    node_id: int
    host: str
    port: int
    rack: str | None


NOWHERE = Node(NO_NODE, "", -1, None)


@dataclass(frozen=True)
class ShardLeader:
    """The node that leads a shard, and its epoch, which never goes back."""

    node_id: int
    epoch: int


@dataclass(frozen=True)
class ClusterNodes:
    """One moment of the cluster, as the clients of one listener see it. `leaders`: by shard, of those that have one.
    `controller_id`: clients send it their administrative requests; every broker takes them."""

    cluster_id: str
    nodes: tuple[Node, ...]
    leaders: Mapping[int, ShardLeader]

    @property
    def controller_id(self) -> int:
        return min((node.node_id for node in self.nodes), default=NO_NODE)

    def node(self, node_id: int) -> Node | None:
        return next((node for node in self.nodes if node.node_id == node_id), None)


def cluster_nodes(service: KafkaService, context: RequestContext, listener: str) -> ClusterNodes:
    """The cluster now."""
    status = service.broker.cluster(context)
    numbers = {place.broker_id: place.node_id for place in status.brokers}
    leaders = {
        shard.shard: ShardLeader(numbers[shard.leader], shard.epoch)
        for shard in status.shards
        if shard.leader in numbers and numbers[shard.leader] != NO_NODE
    }
    nodes = tuple(_node(place, listener) for place in status.brokers if listener in place.listeners)
    return ClusterNodes(status.cluster_id or SOLE_CLUSTER_ID, nodes, leaders)


def own_node_id(service: KafkaService) -> int:
    """The number of this broker."""
    return service.broker.status().node_id


def node_of(service: KafkaService, route: Route, nodes: ClusterNodes) -> Node | None:
    """The node that `route` leads to; None while no leader is known."""
    if route.local:
        return nodes.node(own_node_id(service))
    return nodes.node(route.leader.node_id) if route.leader else None


def _node(place: BrokerPlace, listener: str) -> Node:
    host, _, port = place.listeners[listener].rpartition(":")
    rack = None if place.zone in ("", _NO_ZONE) else place.zone
    return Node(place.node_id, host.strip("[]"), int(port), rack)
