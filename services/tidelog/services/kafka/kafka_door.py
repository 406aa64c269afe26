"""The front door for clients of Kafka's TCP protocol."""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import replace
from functools import partial

from tidelog.services.doors.front_door import ServedBroker, bound_socket
from tidelog.services.doors.kafka_counts import KafkaCounts
from tidelog.services.doors.open_files import connections_within, open_files_max
from tidelog.services.kafka.dispatch import Dispatcher
from tidelog.services.kafka.listener.connection import KafkaConnection
from tidelog.services.kafka.listener.connections import Connections, ListenerBounds
from tidelog.services.kafka.service import KafkaService
from tidelog.services.settings.listeners import (
    ANY_ADDRESSES,
    NO_LISTENERS,
    Listener,
    default_listener,
    listeners_text,
    parse_listeners,
    told_listener,
)
from tidelog.services.settings.settings import Settings
from tidelog.storage.errors import Invalid
from tidelog.storage.runtime import Runtime

DRAIN_SHARE = 0.5
"""The share of ``shutdown.timeout.ms`` in which requests under way are answered."""
_ANY = ("", *ANY_ADDRESSES)

_log = logging.getLogger(__name__)


class KafkaDoor:
    """See `doors.front_door.FrontDoor`. It listens on each of the ``listeners``, or at the default port if that is
    free."""

    def __init__(self, runtime: Runtime, counts: KafkaCounts) -> None:
        self._runtime = runtime
        self._counts = counts
        self._sockets: list[tuple[Listener, socket.socket]] = []
        self._draining = asyncio.Event()
        self._aborting = asyncio.Event()

    @property
    def address(self) -> str:
        return listeners_text(self._listeners)

    def bind(self, settings: Settings) -> Settings:
        advertised = parse_listeners("advertised.listeners", settings.advertised_listeners)
        if settings.listeners is None and not advertised:
            return self._bound_by_default(settings)
        for listener in parse_listeners("listeners", settings.listeners) or (default_listener(settings.host),):
            self._listen(listener)
        return self._settings(settings, advertised_listeners(self._listeners, advertised))

    def _bound_by_default(self, settings: Settings) -> Settings:
        """Nobody asked for this listener, so a port in use does not end the start."""
        try:
            self._listen(default_listener(settings.host))
        except Invalid as error:
            _log.warning("clients of Kafka's protocol cannot reach this broker: %s", error)
            return replace(settings, listeners=NO_LISTENERS)
        told = (told_listener(listener, settings.advertised_address) for listener in self._listeners)
        return self._settings(settings, tuple(told))

    def _listen(self, listener: Listener) -> None:
        bound = bound_socket(listener.host or ANY_ADDRESSES[0], listener.port, "--listeners")
        self._sockets.append((replace(listener, port=bound.getsockname()[1]), bound))

    def _settings(self, settings: Settings, told: tuple[Listener, ...]) -> Settings:
        return replace(settings, listeners=self.address, advertised_listeners=listeners_text(told))

    @property
    def _listeners(self) -> tuple[Listener, ...]:
        return tuple(listener for listener, _ in self._sockets)

    async def serve(self, broker: ServedBroker, settings: Settings) -> None:
        connections = Connections(_bounds(settings), self._counts, self._runtime.clock)
        dispatcher = Dispatcher(KafkaService(broker, settings, self._runtime, self._draining))
        servers = [await _server(*place, connections, dispatcher) for place in self._sockets]
        sweeping = asyncio.create_task(connections.sweep_forever())
        try:
            await self._draining.wait()
        finally:
            for server in servers:
                server.close()
            sweeping.cancel()
            await self._drained(connections, settings)

    def close(self) -> None:
        """Stop listening."""
        for _, bound in self._sockets:
            bound.close()

    def drain(self) -> None:
        self._draining.set()

    def abort(self) -> None:
        self._aborting.set()
        self.drain()

    async def _drained(self, connections: Connections, settings: Settings) -> None:
        timeout_s = settings.shutdown_timeout_ms / 1000 * DRAIN_SHARE
        draining = asyncio.create_task(connections.drained(timeout_s))
        aborted = asyncio.create_task(self._aborting.wait())
        await asyncio.wait((draining, aborted), return_when=asyncio.FIRST_COMPLETED)
        aborted.cancel()
        if not draining.done():
            connections.abort()
        await draining


def advertised_listeners(bound: tuple[Listener, ...], given: tuple[Listener, ...]) -> tuple[Listener, ...]:
    """The address of each `bound` listener for clients: as `given`, otherwise its own. Raises `Invalid`."""
    by_name = {listener.name: listener for listener in given}
    unknown = sorted(by_name.keys() - {listener.name for listener in bound})
    if unknown:
        raise _invalid(f"advertised.listeners names {', '.join(unknown)}, which listeners does not")
    return tuple(_checked(by_name.get(listener.name) or _own(listener), listener) for listener in bound)


def _own(listener: Listener) -> Listener:
    return replace(listener, host=listener.host or socket.gethostname())


def _checked(told: Listener, bound: Listener) -> Listener:
    if told.host in _ANY:
        raise _invalid(
            f"clients cannot connect to {told}: set advertised.listeners to {told.name}://HOST:{told.port} with a HOST "
            "that they reach"
        )
    return told if told.port else replace(told, port=bound.port)


def _invalid(message: str) -> Invalid:
    return Invalid(message, field="advertised.listeners")


def _bounds(settings: Settings) -> ListenerBounds:
    connections_max = connections_within(open_files_max(), settings.max_connections)
    if connections_max < settings.max_connections:
        told = "max.connections is %d, and the process may open %d files: at most %d connections of Kafka's protocol"
        _log.info(told, settings.max_connections, open_files_max(), connections_max)
    return ListenerBounds(
        connections_max,
        settings.max_connections_per_ip,
        settings.socket_request_max_bytes,
        settings.queued_max_request_bytes,
        settings.connections_max_idle_ms / 1000,
        settings.request_read_timeout_ms / 1000,
    )


async def _server(
    listener: Listener, bound: socket.socket, connections: Connections, dispatcher: Dispatcher
) -> asyncio.Server:
    connection = partial(KafkaConnection, listener.name, connections, dispatcher.place)
    return await asyncio.get_running_loop().create_server(connection, sock=bound)
