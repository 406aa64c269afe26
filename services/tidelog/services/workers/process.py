"""Runs `tidelog compactor`: opens the bucket, then runs rounds until a signal comes or nothing is due.

It also sweeps the bucket (`sweeping`), because brokers that leave upkeep to a compactor do not sweep.

SIGTERM and SIGINT end it between two requests to the store. That is always safe: a segment that was uploaded without a
manifest version is an orphan, and the next worker starts from the newest manifest.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tidelog.coordinator.journal import Journal
from tidelog.services.runtime.opening import build_collector, build_sweeps, build_upkeep, open_named_store
from tidelog.services.settings.settings import Settings
from tidelog.services.workers.alive_file import kept_alive
from tidelog.services.workers.compactor import Appended, Compactor, RoundReport
from tidelog.storage.errors import Unavailable
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.retrying import RetryingObjectStore

PAUSE_S_MIN = 1.0
"""The least pause between two rounds."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CompactorOptions:
    """`topics`: the topics to maintain, empty for all. `interval_s`: the pause between rounds, unless work is due
    earlier. `alive_file`: renewed while the compactor runs."""

    topics: tuple[str, ...] = ()
    interval_s: float = 60.0
    once: bool = False
    alive_file: Path | None = None

    @property
    def sweeps(self) -> bool:
        """Whether it sweeps the bucket: not if it runs once, or for some topics only."""
        return not self.once and not self.topics


@dataclass(frozen=True)
class Totals:
    """The results of all rounds. `failures` of the last round, among them those for a `damaged` object."""

    rounds: int = 0
    versions: int = 0
    failures: int = 0
    damaged: int = 0

    def after(self, report: RoundReport) -> Totals:
        return Totals(self.rounds + 1, self.versions + report.versions, report.failures, report.damaged)


async def run_compactor(
    settings: Settings, options: CompactorOptions, on_version: Callable[[Appended], None]
) -> Totals:
    """Maintain the bucket that `settings.store` names; call `on_version` for every version written. Returns after a
    signal, or with `once` after the first round without work. Raises `Invalid`, `Unavailable` or `Corrupt` if it cannot
    begin."""
    runtime = Runtime()
    async with contextlib.aclosing(RetryingObjectStore(open_named_store(settings, runtime), runtime)) as store:
        upkeep = build_upkeep(settings, store, runtime)
        new_collector = partial(build_collector, settings, store, runtime)
        compactor = Compactor(store, Journal(store, runtime), upkeep, new_collector, runtime, options.topics)
        await compactor.open()
        _log.info("tending", extra={"fields": {"store": store.url, "topics": list(options.topics) or "all"}})
        rounds = _Rounds(compactor, options, runtime, on_version)
        async with _sweeping(settings, options, runtime, store), kept_alive(options.alive_file, runtime.clock):
            with _ended_by_signals(asyncio.create_task(rounds.run())) as running:
                await asyncio.wait((running,))
        if not running.cancelled():
            running.result()
        _log.info("stopped", extra={"fields": {"rounds": rounds.totals.rounds, "versions": rounds.totals.versions}})
        return rounds.totals


class _Rounds:
    """Runs rounds with pauses in between."""

    def __init__(
        self, compactor: Compactor, options: CompactorOptions, runtime: Runtime, on_version: Callable[[Appended], None]
    ) -> None:
        self._compactor = compactor
        self._options = options
        self._clock = runtime.clock
        self._on_version = on_version
        self.totals = Totals()

    async def run(self) -> None:
        while True:
            report = await self._round()
            self.totals = self.totals.after(report)
            if self._options.once and not report.versions:
                return
            if not self._options.once or not report.versions:
                await self._clock.sleep(self._pause_s(report))

    async def _round(self) -> RoundReport:
        try:
            async for appended in self._compactor.round():
                self._on_version(appended)
        except Unavailable as error:
            if self._options.once:
                raise
            _log.warning("cannot read the topics, next round in %.0f s: %s", self._options.interval_s, error)
        return self._compactor.report

    def _pause_s(self, report: RoundReport) -> float:
        until_due_s = self._options.interval_s
        if report.due_at_ms is not None:
            until_due_s = (report.due_at_ms - self._clock.now_ms()) / 1_000
        return max(PAUSE_S_MIN, min(self._options.interval_s, until_due_s))


class _Always:
    """A compactor may always sweep. A broker or another compactor that sweeps at the same time does no harm."""

    async def while_it_lasts(self, work: Coroutine[None, None, None]) -> None:
        await work


@contextlib.asynccontextmanager
async def _sweeping(
    settings: Settings, options: CompactorOptions, runtime: Runtime, store: ObjectStore
) -> AsyncIterator[None]:
    """Sweep in the background, if `options.sweeps`."""
    always = _Always()
    sweeps = build_sweeps(settings, store, runtime, lambda: always)
    if options.sweeps:
        sweeps.start()
    try:
        yield
    finally:
        await sweeps.close()


@contextlib.contextmanager
def _ended_by_signals(running: asyncio.Task[None]) -> Iterator[asyncio.Task[None]]:
    """Cancel `running` at SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, running.cancel)
    try:
        yield running
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
