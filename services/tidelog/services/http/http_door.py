"""The HTTP front door: uvicorn around the application."""

from __future__ import annotations

import socket
from dataclasses import replace

from tidelog.services.doors.front_door import ServedBroker, authority, bound_socket
from tidelog.services.http.app import create_app
from tidelog.services.http.server import DrainingServer, server_config
from tidelog.services.http.service import Service
from tidelog.services.settings.settings import Settings
from tidelog.storage.errors import Unavailable
from tidelog.storage.runtime import Runtime


class HttpDoor:
    """See `runtime.front_door.FrontDoor`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._socket: socket.socket | None = None
        self._server: DrainingServer | None = None

    @property
    def address(self) -> str:
        return f"http://{authority(*self._bound().getsockname()[:2])}"

    def bind(self, settings: Settings) -> Settings:
        self._socket = bound_socket(settings.host, settings.port, "--port")
        return replace(settings, port=self._socket.getsockname()[1])

    async def serve(self, broker: ServedBroker, settings: Settings) -> None:
        app = create_app(broker, settings, self._runtime)
        service: Service = app.state.service
        self._server = DrainingServer(server_config(app, settings), service)
        try:
            await self._server.serve([self._bound()])
        finally:
            self._bound().close()
            await service.aclose()

    def drain(self) -> None:
        if self._server:
            self._server.drain()

    def abort(self) -> None:
        if self._server:
            self._server.abort()

    def _bound(self) -> socket.socket:
        if self._socket is None:
            raise Unavailable("the HTTP door is not bound yet")
        return self._socket
