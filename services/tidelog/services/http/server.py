"""Runs uvicorn with bounds on connections. The HTTP door stops it; it does not handle signals itself."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import uvicorn

from tidelog.services.http.listener.connection_bounds import BoundedProtocol, ConnectionBounds
from tidelog.services.http.service import Service
from tidelog.services.settings.settings import Settings

_BACKLOG = 2048
_KEEP_ALIVE_S = 75


class DrainingServer(uvicorn.Server):
    """uvicorn's server, which ends streams and long polls when it stops. `listening` is set when it accepts
    connections."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals: the process handles them (`runtime.serving`)."""
        yield

    def drain(self) -> None:
        """Stop accepting connections. `serve` returns when every request is answered."""
        self.should_exit = True
        self._service.waiting.drain()

    def abort(self) -> None:
        """Make `serve` return at once."""
        self.force_exit = True
        self.drain()


def _bounds(settings: Settings) -> ConnectionBounds:
    return ConnectionBounds(settings.connections_max, settings.request_head_timeout_ms / 1000)


def server_config(app: object, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]  # uvicorn declares a narrower type than any ASGI application has
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
