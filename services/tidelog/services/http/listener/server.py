"""`tidelog serve`: one broker process, from its listening socket to its exit code.

The socket is bound first, so that a port in use is told before the store is touched. SIGTERM and SIGINT stop it
gracefully: no new connections, streams and long polls end, produces under way are committed and answered, the buffer
is flushed, exit 0; all within ``shutdown.timeout.ms``. A second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version

import uvicorn

from tidelog.services.http.app import create_app, running
from tidelog.services.http.listener.connection_bounds import BoundedProtocol, ConnectionBounds
from tidelog.services.http.service import Service
from tidelog.services.runtime.logs import configure_logs
from tidelog.services.runtime.malloc_bounds import bound_malloc
from tidelog.services.runtime.settings import Settings
from tidelog.services.runtime.settings_sources import log_ignored
from tidelog.services.runtime.wiring import open_broker
from tidelog.storage.errors import TidelogError
from tidelog.storage.runtime import Runtime

EXIT_OK = 0
EXIT_FAILED = 1
_BACKLOG = 2048
_KEEP_ALIVE_S = 75

logger = logging.getLogger(__name__)


class DrainingServer(uvicorn.Server):
    """uvicorn's server with signals that stop it and leave the exit code alone, and streams that end when it stops."""

    def __init__(
        self, config: uvicorn.Config, service: Service, *, hand_over: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        super().__init__(config)
        self._service = service
        self._first = hand_over
        self._handing_over: asyncio.Task[None] | None = None
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn raises a captured signal again once it has stopped; here a signal is a request, well met. Outside
        the main thread there are none to meet."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            loop.add_signal_handler(number, self._stop, number)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Stop gracefully: hand over first, answering as ever, then refuse. Asked again, stop at once."""
        if self._handing_over is None:
            self._handing_over = asyncio.create_task(self._hand_over())
        else:
            self.should_exit = self.force_exit = True
            self._service.connections.drain()

    async def _hand_over(self) -> None:
        try:
            if self._first:
                await self._first()
        finally:
            self.should_exit = True
            self._service.connections.drain()

    def _stop(self, number: signal.Signals) -> None:
        logger.info("stopping", extra={"fields": {"signal": number.name}})
        self.stop()


def serve(settings: Settings, service_links: Collection[str] = ()) -> int:
    """Run a broker until a signal. 0 after a clean stop; 1 if it could not start or could not flush, with the reason
    in the log. `service_links`: ignored variables, to be logged."""
    configure_logs(settings.log_level, settings.log_format)
    log_ignored(service_links)
    bound_malloc()
    try:
        listening = _bind(settings.host, settings.port)
    except OSError as error:
        logger.error("%s", _bind_failure(settings, error))
        return EXIT_FAILED
    with listening, asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(settings, listening))


def _loop_factory() -> type[asyncio.AbstractEventLoop]:
    if sys.platform == "win32":
        return asyncio.ProactorEventLoop
    import uvloop

    return uvloop.Loop


def _bind(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bind_failure(settings: Settings, error: OSError) -> str:
    place = _authority(settings.host, settings.port)
    if error.errno == errno.EADDRINUSE:
        return f"{place} is in use by another process: stop that one, or choose another port with --port"
    return f"cannot listen on {place}: {error.strerror or error}"


async def _serve(settings: Settings, listening: socket.socket) -> int:
    runtime = Runtime()
    settings = replace(settings, port=listening.getsockname()[1])  # port 0: the one that was found free
    try:
        broker = open_broker(settings, runtime)
        app = create_app(broker, settings, runtime)
        service: Service = app.state.service
        async with running(broker, service):
            fields = {
                "address": f"http://{_authority(*listening.getsockname()[:2])}",
                "store": settings.store,
                "version": version("tidelog"),
            }
            logger.info("listening", extra={"fields": fields})
            _spare_the_collector()
            server = DrainingServer(server_config(app, settings), service, hand_over=broker.hand_over)
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            replaced = asyncio.create_task(broker.must_stop())
            await asyncio.wait((serving, replaced), return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                logger.error("%s", replaced.result())
                server.stop()
            replaced.cancel()
            await serving
    except TidelogError as error:
        logger.error("%s", error, extra={"fields": {"store": settings.store}})
        return EXIT_FAILED
    except TimeoutError:
        logger.error("records were still unflushed after shutdown.timeout.ms: their producers were not answered")
        return EXIT_FAILED
    logger.info("stopped")
    return EXIT_OK


def _spare_the_collector() -> None:
    """What was made until now stays, so the garbage collector need not walk over it again and again: a full
    collection of all the modules' objects held up every request for tens of milliseconds."""
    gc.collect()
    gc.freeze()


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
