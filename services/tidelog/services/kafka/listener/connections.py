"""All connections of Kafka clients: how many there may be, and when they end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.services.doors.kafka_counts import KafkaCounts
from tidelog.services.kafka.listener.client_networks import ClientNetworks
from tidelog.services.kafka.listener.frames import new_scratch
from tidelog.services.kafka.listener.request_memory import RequestMemory
from tidelog.storage.runtime import Clock

if TYPE_CHECKING:
    from tidelog.services.kafka.listener.connection import Client, KafkaConnection

SWEEP_S_MAX = 5.0
LINES_PER_SWEEP_MAX = 10
"""Log lines about ended connections between two sweeps; the others are counted."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ListenerBounds:
    """The settings ``max.connections``, ``max.connections.per.ip``, ``socket.request.max.bytes``,
    ``queued.max.request.bytes``, ``connections.max.idle.ms`` and ``request.read.timeout.ms``."""

    connections_max: int
    connections_per_address_max: int
    frame_bytes_max: int
    memory_bytes_max: int
    idle_s: float
    read_timeout_s: float


class Connections:
    """The open connections, with what they share."""

    def __init__(self, bounds: ListenerBounds, counts: KafkaCounts, clock: Clock) -> None:
        self.bounds = bounds
        self.counts = counts
        self.memory = RequestMemory(bounds.memory_bytes_max, counts)
        self.scratch = new_scratch()
        self.now_s = clock.monotonic
        self._clock = clock
        self._open: set[KafkaConnection] = set()
        self._networks = ClientNetworks(bounds.connections_per_address_max)
        self._lines = 0
        self._none_open = asyncio.Event()
        self._none_open.set()

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, connection: KafkaConnection, host: str) -> bool:
        """Whether `connection`, which comes from `host`, may stay."""
        if len(self._open) >= self.bounds.connections_max:
            return self._refused("max.connections", host)
        if not self._networks.take(host):
            return self._refused("max.connections.per.ip", host)
        self._open.add(connection)
        self._none_open.clear()
        self.counts.connections = len(self._open)
        return True

    def closed(self, connection: KafkaConnection, host: str) -> None:
        self._open.discard(connection)
        self._networks.give_back(host)
        self.counts.connections = len(self._open)
        if not self._open:
            self._none_open.set()

    def ended(self, client: Client, reason: str) -> None:
        """The broker ends a connection because of `reason`."""
        self.counts.ended += 1
        fields = {"client": f"{client.host}:{client.port}", "listener": client.listener, "reason": reason}
        self._tell("ended the connection of a Kafka client", fields)

    async def sweep_forever(self) -> None:
        """End connections that are overdue."""
        while True:
            await self._clock.sleep(min(SWEEP_S_MAX, self.bounds.idle_s / 2, self.bounds.read_timeout_s / 2))
            self.sweep(self.now_s())

    def sweep(self, now_s: float) -> None:
        """End the connections that are overdue at `now_s`."""
        if self._lines > LINES_PER_SWEEP_MAX:
            _log.warning("ended or refused %d more connections", self._lines - LINES_PER_SWEEP_MAX)
        self._lines = 0
        for connection in tuple(self._open):
            reason = connection.overdue(now_s)
            if reason is not None:
                connection.end(reason)

    async def drained(self, timeout_s: float) -> None:
        """Let all connections answer their requests, and return once they are closed, or after `timeout_s`."""
        for connection in tuple(self._open):
            connection.drain()
        try:
            async with asyncio.timeout(timeout_s):
                await self._none_open.wait()
        except TimeoutError:
            _log.warning("%d connections had unanswered requests when the time to stop was over", len(self._open))
            self.abort()

    def abort(self) -> None:
        """End all connections at once."""
        for connection in tuple(self._open):
            connection.end(at_once=True)

    def _refused(self, bound: str, host: str) -> bool:
        self.counts.refused += 1
        self._tell(f"refused a connection: {bound} is reached", {"client": host, "connections": len(self._open)})
        return False

    def _tell(self, message: str, fields: Mapping[str, object]) -> None:
        self._lines += 1
        if self._lines <= LINES_PER_SWEEP_MAX:
            _log.warning(message, extra={"fields": fields})
