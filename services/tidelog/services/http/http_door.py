"""The HTTP front door: uvicorn around the application."""

from __future__ import annotations

import socket
from dataclasses import replace

from tidelog.services.doors.front_door import ServedBroker, authority, bound_socket
from tidelog.services.http.app import create_app
from tidelog.services.http.server import DrainingServer, server_config
from tidelog.services.http.service import Service
from tidelog.services.settings.settings import Settings
from tidelog.storage.runtime import Runtime


class HttpDoor:
    """See `doors.front_door.FrontDoor`."""

    _socket: socket.socket

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._server: DrainingServer | None = None

    @property
    def address(self) -> str:
        return f"http://{authority(*self._socket.getsockname()[:2])}"

    def bind(self, settings: Settings) -> Settings:
        self._socket = bound_socket(settings.host, settings.port, "--port")
        return replace(settings, port=self._socket.getsockname()[1])

    async def serve(self, broker: ServedBroker, settings: Settings) -> None:
        app = create_app(broker, settings, self._runtime)
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
