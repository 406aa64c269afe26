"""The HTTP front door: uvicorn around the application."""

from __future__ import annotations

import socket
from dataclasses import replace

from tidelog.services.doors.front_door import ServedBroker, authority, bound_socket
from tidelog.services.doors.kafka_counts import KafkaCounts
from tidelog.services.http.app import create_app
from tidelog.services.http.server import DrainingServer, server_config
from tidelog.services.http.service import Service
from tidelog.services.settings.settings import Settings
from tidelog.storage.runtime import Runtime


class HttpDoor:
    """See `doors.front_door.FrontDoor`."""

    _socket: socket.socket

    def __init__(self, runtime: Runtime, kafka_counts: KafkaCounts | None = None) -> None:
        """`kafka_counts`: the counts of the Kafka door, to be exported with the metrics, if there is one."""
        self._runtime = runtime
        self._kafka_counts = kafka_counts
        self._server: DrainingServer | None = None

    @property
    def address(self) -> str:
        return f"http://{authority(*self._socket.getsockname()[:2])}"

    def bind(self, settings: Settings) -> Settings:
        self._socket = bound_socket(settings.host, settings.port, "--port")
        return replace(settings, port=self._socket.getsockname()[1])

    async def serve(self, broker: ServedBroker, settings: Settings) -> None:
        app = create_app(broker, settings, self._runtime, self._kafka_counts)
        service: Service = app.state.service
        self._server = DrainingServer(server_config(app, settings), service)
        try:
            await self._server.serve([self._socket])
        finally:
            self._socket.close()
            await service.aclose()

    def drain(self) -> None:
        if self._server:
            self._server.drain()

    def abort(self) -> None:
        if self._server:
            self._server.abort()
