"""A broker that listens in its own thread, for tests without asyncio.

It runs on uvloop, as a broker process does. asyncio's own loop loses a connection that is accepted as the server stops
(see `TcpProxy`).
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType

import uvloop

from tidelog.services.http.app import create_app
from tidelog.services.http.server import DrainingServer, server_config
from tidelog.services.runtime.wiring import open_broker
from tidelog.services.settings.settings import Settings
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime


class RunningServer:
    """Serves on a free port from `__enter__` to `__exit__`."""

    def __init__(self, settings: Settings, store: ObjectStore | None = None) -> None:
        self._settings = replace(settings, shutdown_timeout_ms=4_000)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._started = threading.Event()
        self._store = store
        self._stop = lambda: None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: uvloop.run(self._serve()), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> RunningServer:
        self._port = self._socket.getsockname()[1]
        self._thread.start()
        assert self._started.wait(60), "the broker did not start"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()
        self._thread.join()
        self._socket.close()

    def call(self, function: Callable[[], object]) -> None:
        """Call `function` in the broker's event loop, without waiting."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(function)

    async def _serve(self) -> None:
        broker = open_broker(self._settings, Runtime(), store=self._store)
        await broker.start()
        app = create_app(broker, self._settings, Runtime())
        service = app.state.service
        server = DrainingServer(server_config(app, self._settings), service)
        self._loop = loop = asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(server.drain)
        serving = asyncio.ensure_future(server.serve([self._socket]))
        await server.listening.wait()
        self._started.set()
        await serving
        await broker.aclose()
        await service.aclose()
