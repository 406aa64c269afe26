"""Sends fetches and produces directly to the leaders of their partitions, and to any broker if that is not possible.

Any broker takes any request and forwards it. Going to the leader saves that hop, and in a cloud often the way between
zones. `Leaders` reads from the cluster which broker leads which partition. It reads that again when it is old, and when
a leader did not answer or has lost its shard. A leader that cannot be reached is left alone for `SHUNNED_S`, and for
twice as long each further time: its advertised address may be unknown outside the brokers' network.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from tidelog.client.broker_access import BrokerAccess
from tidelog.client.connection import Answer, Connection, Request, Unreachable, decoded, harmless_to_repeat
from tidelog.client.consumed import TopicPartition
from tidelog.client.request_paths import topic_path
from tidelog.storage.errors import Fenced, Overloaded, TidelogError, Unavailable
from tidelog.storage.runtime import Runtime
from tidelog.wire.cluster import ClusterDescription
from tidelog.wire.topics import TopicDescription

MAP_AGE_S_MAX = 60.0
MAP_AGE_S_MIN = 1.0
"""The shortest time between two readings of the map, however often leaders move."""
SHUNNED_S = 30.0
SHUNNED_S_MAX = 600.0
POOL = 4

logger = logging.getLogger("tidelog.client")


class Leaders:
    """Thread-safe. `any_broker` reaches the cluster by the addresses that the program gave. `pool` bounds the
    connections to one leader."""

    def __init__(self, access: BrokerAccess, any_broker: Connection, runtime: Runtime, pool: int = POOL) -> None:
        self._access = access
        self._any = any_broker
        self._runtime = runtime
        self._pool = pool
        self._lock = threading.Lock()
        self._connections: dict[str, Connection] = {}
        self._addresses: dict[TopicPartition, str] = {}
        self._partitions: dict[str, int] = {}
        self._shunned: dict[str, float] = {}
        self._shunned_s: dict[str, float] = {}
        self._read_at: float | None = None
        self._stale = False
        self._closed = False

    def of(self, partition: TopicPartition) -> str:
        """The address of the leader; empty: ask any broker."""
        address = self._addresses.get(partition, "")
        return "" if self._shunned.get(address, 0.0) > self._runtime.clock.monotonic() else address

    def due(self) -> bool:
        """Whether `read` should be called."""
        if self._read_at is None:
            return True
        age_s = self._runtime.clock.monotonic() - self._read_at
        return age_s > (MAP_AGE_S_MIN if self._stale else MAP_AGE_S_MAX)

    def read(self, topics: Iterable[str]) -> None:
        """Read the map for `topics` again. An error leaves the old one; then any broker is asked."""
        with self._lock:
            if not self.due():
                return
            self._read_at, self._stale = self._runtime.clock.monotonic(), False
        try:
            addresses = self._leader_addresses()
            found: dict[TopicPartition, str] = {}
            for topic in topics:
                found.update(self._placed(topic, addresses))
            self._addresses = found
        except TidelogError as error:
            logger.info("requests go to any broker, because the leaders are not known: %s", error)
            self._stale = True

    def partition_counts(self) -> dict[str, int]:
        """How many partitions each topic had when the map was read."""
        return dict(self._partitions)

    def moved(self, leader: str) -> None:
        """The broker that was asked knows no leader: `leader`, or any broker if that is empty. Then another one is
        asked next, because this one may be cut off from etcd."""
        self._stale = True
        if not leader:
            self._any.move_on()

    def call(self, leader: str, request: Request, *, deadline_s: float | None = None) -> Answer:
        """Send `request` to `leader`, and to any broker if that fails and a repetition is harmless. `deadline_s` bounds
        all of it (None: the connection's own). If the request can be repeated, the leader has
        `ANSWER_TIMEOUT_MIN_S` to answer, because its machine may be gone. Raises the errors of `Connection.call`."""
        connection = self._connection_to(leader)
        if connection is None:
            return self._any.call(request, deadline_s=deadline_s)
        began = self._runtime.clock.monotonic()
        try:
            answer = connection.attempt(request, 0.0 if request.repeatable else deadline_s or 0.0)
        except (Unavailable, Fenced) as error:
            self._leave(leader, error)
            if not harmless_to_repeat(request, error):
                raise
        else:
            self._shunned_s.pop(leader, None)
            return answer
        spent_s = self._runtime.clock.monotonic() - began
        return self._any.call(request, deadline_s=None if deadline_s is None else max(0.0, deadline_s - spent_s))

    def close(self) -> None:
        """Break off the direct calls."""
        with self._lock:
            self._closed = True
            connections = tuple(self._connections.values())
        for connection in connections:
            connection.close()

    def _leave(self, leader: str, error: Unavailable | Fenced) -> None:
        """Read the map again soon, and ask other brokers meanwhile, unless `leader` is only busy."""
        self._stale = True
        if isinstance(error, Overloaded):
            return
        shunned_s = SHUNNED_S
        if isinstance(error, Unreachable):
            shunned_s = min(self._shunned_s.get(leader, SHUNNED_S), SHUNNED_S_MAX)
            self._shunned_s[leader] = 2 * shunned_s
        self._shunned[leader] = self._runtime.clock.monotonic() + shunned_s

    def _connection_to(self, leader: str) -> Connection | None:
        with self._lock:
            if not leader or self._closed:
                return None
            if leader not in self._connections:
                self._connections[leader] = Connection(self._access.at(leader), runtime=self._runtime, pool=self._pool)
            return self._connections[leader]

    def _leader_addresses(self) -> dict[int, str]:
        """Address of the leader by shard; empty with a single broker, which may be behind a proxy."""
        cluster = decoded(self._ask("/v1/cluster"), ClusterDescription).cluster
        if len(cluster.brokers) < 2:
            return {}
        addresses = {member.broker: member.address for member in cluster.brokers}
        return {shard.shard: addresses.get(shard.leader or "", "") for shard in cluster.shards}

    def _placed(self, topic: str, addresses: dict[int, str]) -> dict[TopicPartition, str]:
        described = decoded(self._ask(topic_path(topic)), TopicDescription)
        self._partitions[topic] = len(described.partitions)
        return {TopicPartition(topic, one.partition): addresses.get(one.shard, "") for one in described.partitions}

    def _ask(self, path: str) -> Answer:
        """One attempt, because requests go to any broker while the map is not known."""
        return self._any.call(Request("GET", path), deadline_s=0.0)
