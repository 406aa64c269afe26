"""`tidelog serve`: one broker process, from its listening sockets to its exit code.

The front doors bind their sockets first, so that a port in use is reported before the store is touched. SIGTERM and
SIGINT stop the process gracefully: the broker hands its shards over, the doors drain, produces under way are committed
and answered, the buffer is flushed, exit 0; all within ``shutdown.timeout.ms``. A second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version

from tidelog.services.doors.front_door import FrontDoor, ServedBroker
from tidelog.services.runtime.front_doors import front_doors
from tidelog.services.runtime.logs import configure_logs
from tidelog.services.runtime.wiring import open_broker
from tidelog.services.settings.settings import Settings
from tidelog.services.settings.settings_sources import log_ignored
from tidelog.storage.errors import TidelogError
from tidelog.storage.runtime import Runtime

EXIT_OK = 0
EXIT_FAILED = 1
BROKER_SHARE = 0.5
"""The share of ``shutdown.timeout.ms`` that the broker has to flush, after the doors had the rest to drain."""

SWITCH_INTERVAL_S = 0.001
"""A thread that wants the GIL waits this long for another one that computes in Python. Beside an archiver, the p99 of
the event loop's lateness was 5.2 ms with Python's 5 ms, and 2.7 ms with this, for the same CPU time (ADR 0033)."""

_log = logging.getLogger(__name__)


def serve(settings: Settings, service_links: Collection[str] = ()) -> int:
    """Run a broker until a signal. 0 after a clean stop; 1 if it could not start or could not flush, with the reason
    in the log. `service_links`: ignored variables, to be logged."""
    configure_logs(settings.log_level, settings.log_format)
    log_ignored(service_links)
    runtime = Runtime()
    doors = front_doors(runtime, settings)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        try:
            for door in doors:
                settings = door.bind(settings)
            runner.run(_serve(settings, [door for door in doors if door.address], runtime))
        except TidelogError as error:
            _log.error("%s", error, extra={"fields": {"store": settings.store}})
            return EXIT_FAILED
        except TimeoutError:
            _log.error("records were still unflushed after shutdown.timeout.ms: their producers were not answered")
            return EXIT_FAILED
    _log.info("stopped")
    return EXIT_OK


def _loop_factory() -> type[asyncio.AbstractEventLoop]:
    if sys.platform == "win32":
        return asyncio.ProactorEventLoop
    import uvloop

    return uvloop.Loop


async def _serve(settings: Settings, doors: Sequence[FrontDoor], runtime: Runtime) -> None:
    broker = open_broker(settings, runtime)
    await broker.start()
    try:
        for door in doors:
            fields = {"address": door.address, "store": settings.store, "version": version("tidelog")}
            _log.info("listening", extra={"fields": fields})
        _spare_the_collector()
        await _until_stopped(broker, settings, doors)
    finally:
        async with asyncio.timeout(settings.shutdown_timeout_ms / 1000 * BROKER_SHARE):
            await broker.aclose()


async def _until_stopped(broker: ServedBroker, settings: Settings, doors: Sequence[FrontDoor]) -> None:
    """Serve until a signal, or until the broker must stop or a door fails; then hand over, drain, and return."""
    stops = _Stops()
    serving = [asyncio.create_task(door.serve(broker, settings)) for door in doors]
    replaced = asyncio.create_task(broker.must_stop())
    with stops.by_signals():
        await _any_of(*serving, replaced, stops.first)
        if replaced.done():
            _log.error("%s", replaced.result())
        replaced.cancel()
        handing_over = asyncio.create_task(broker.hand_over())  # `aclose` does the rest of it, and raises its error
        await _any_of(handing_over, stops.second)
        for door in doors:
            door.drain()
        drained = asyncio.gather(*serving)
        await _any_of(drained, stops.second)
        if stops.second.done():
            for door in doors:
                door.abort()
        await drained


class _Stops:
    """The first and the second signal that ask this process to stop."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.first: asyncio.Future[None] = loop.create_future()
        self.second: asyncio.Future[None] = loop.create_future()

    @contextmanager
    def by_signals(self) -> Iterator[None]:
        loop, signals = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            loop.add_signal_handler(number, self._stop, number)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    def _stop(self, number: signal.Signals) -> None:
        _log.info("stopping", extra={"fields": {"signal": number.name}})
        asked = self.second if self.first.done() else self.first
        if not asked.done():
            asked.set_result(None)


async def _any_of(*awaited: asyncio.Future[None] | asyncio.Future[str] | asyncio.Future[list[None]]) -> None:
    """Return once one of `awaited` is done, and let the others run on."""
    await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)


def _spare_the_collector() -> None:
    """Exempt the objects made until now from garbage collection: a full collection of all modules' objects held up
    every request for tens of milliseconds."""
    gc.collect()
    gc.freeze()
