"""uvicorn, as the HTTP door runs it: with bounds on connections, and ended by its door instead of by signals."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import uvicorn

from tidelog.services.http.listener.connection_bounds import BoundedProtocol, ConnectionBounds
from tidelog.services.http.service import Service
from tidelog.services.runtime.settings import Settings

_BACKLOG = 2048
_KEEP_ALIVE_S = 75


class DrainingServer(uvicorn.Server):
    """uvicorn's server, whose streams and long polls end when it stops. `listening` is set once it accepts."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none: signals belong to the process (`runtime.serving`), not to a door."""
        yield

    def drain(self) -> None:
        """Accept nothing more, and let `serve` return once every request is answered."""
        self.should_exit = True
        self._service.connections.drain()

    def abort(self) -> None:
        """Let `serve` return at once."""
        self.force_exit = True
        self.drain()


def _bounds(settings: Settings) -> ConnectionBounds:
    return ConnectionBounds(settings.connections_max, settings.request_head_timeout_ms / 1000)


def server_config(app: object, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]  # a FastAPI application; uvicorn's own type is wider than any
        http=partial(BoundedProtocol, bounds=_bounds(settings)),  # type: ignore[arg-type]  # uvicorn calls it as a class
        ws="none",
        lifespan="off",
        loop="none",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, settings.shutdown_timeout_ms // 2000),
        backlog=_BACKLOG,
    )
