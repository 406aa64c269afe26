"""The cluster as clients of Kafka's protocol see it: brokers with numbers and addresses, and the leader of each shard.

Clients are told the addresses of the listener that they came in by. A broker that does not have that listener is not
among the nodes.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from tidelog.services.broker.api.cluster import BrokerPlace, ClusterStatus, Route
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.kafka.service import KafkaService

NO_NODE = -1
NO_EPOCH = -1
SOLE_CLUSTER_ID = "tidelog"
"""The id of the cluster of a broker alone, which has none."""
_ID_MAX = 2**31 - 1


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
    nodes = tuple(_node(service, place, status, listener) for place in status.brokers)
    leaders = {shard.shard: ShardLeader(_node_id(shard.leader), shard.epoch) for shard in status.shards if shard.leader}
    return ClusterNodes(status.cluster_id or SOLE_CLUSTER_ID, nodes, leaders)


def node_of(route: Route, own: Node, nodes: ClusterNodes) -> Node | None:
    """The node that `route` leads to; None while no leader is known. `own`: this broker."""
    if route.local:
        return own
    return nodes.node(_node_id(route.leader.broker_id)) if route.leader else None


def own_node(service: KafkaService, nodes: ClusterNodes, listener: str) -> Node:
    """This broker."""
    told = service.advertised[listener]
    found = (node for node in nodes.nodes if (node.host, node.port) == (told.host, told.port))
    return next(found, NOWHERE)


def _node(service: KafkaService, place: BrokerPlace, status: ClusterStatus, listener: str) -> Node:
    told, address = service.advertised[listener], urlsplit(place.address)
    is_own = len(status.brokers) == 1 or place.address == service.settings.own_address
    host = told.host if is_own else address.hostname or told.host
    return Node(_node_id(place.broker_id), host, told.port, None if place.zone == "none" else place.zone or None)


def _node_id(broker_id: str) -> int:
    if broker_id.isascii() and broker_id.isdecimal() and int(broker_id) <= _ID_MAX:
        return int(broker_id)
    return zlib.crc32(broker_id.encode()) & _ID_MAX
