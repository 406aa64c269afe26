"""`tidelog compactor` as a process: from its settings to the rounds, until a signal or until nothing is due.

Beside the rounds it sweeps the bucket (`sweeping`), for brokers that leave upkeep to it leave that to it as well.

SIGTERM and SIGINT end it between any two requests to the store. That is always safe: what was uploaded without a
manifest is an orphan, and whoever comes next starts from the newest manifest.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path

from tidelog.coordinator.journal import Journal
from tidelog.services.runtime.settings import Settings
from tidelog.services.runtime.store_opening import open_named_store
from tidelog.services.runtime.upkeep_wiring import build_sweeps, build_upkeep
from tidelog.services.workers.compactor.alive_file import kept_alive
from tidelog.services.workers.compactor.compactor import Appended, Compactor, RoundReport
from tidelog.storage.errors import Unavailable
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.retrying import RetryingObjectStore

PAUSE_S_MIN = 1.0
"""Between two rounds, whatever is due."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CompactorOptions:
    """`topics`: those to tend, none for all; `interval_s`: between two rounds, if nothing is due before; `alive_file`:
    renewed while it runs."""

    topics: tuple[str, ...] = ()
    interval_s: float = 60.0
    once: bool = False
    alive_file: Path | None = None

    @property
    def sweeps(self) -> bool:
        """Whether the bucket is swept as well: not by one that came for a moment, or for some topics only."""
        return not self.once and not self.topics


@dataclass(frozen=True)
class Totals:
    """What all rounds came to. `failures`: visits that failed in the last round, `damaged`: for what they found."""

    rounds: int = 0
    versions: int = 0
    failures: int = 0
    damaged: int = 0

    def after(self, report: RoundReport) -> Totals:
        return Totals(self.rounds + 1, self.versions + report.versions, report.failures, report.damaged)


async def run_compactor(settings: Settings, options: CompactorOptions, told: Callable[[Appended], None]) -> Totals:
    """Tend the bucket that `settings.store` names; `told` hears of every version. Returns after a signal, or with
    `once` after the first round that had nothing to do. Raises `Invalid`, `Unavailable`, `Corrupt` if it cannot begin.
    """
    runtime = Runtime()
    async with _opened(settings, runtime) as store:
        compactor = _compactor(settings, options, runtime, store)
        await compactor.open()
        _log.info("tending", extra={"fields": {"store": store.url, "topics": list(options.topics) or "all"}})
        rounds = _Rounds(compactor, options, runtime, told)
        async with _sweeping(settings, options, runtime, store), kept_alive(options.alive_file, runtime.clock):
            with _ended_by_signals(asyncio.create_task(rounds.run())) as running:
                await asyncio.wait((running,))
        if not running.cancelled():
            running.result()
        _log.info("stopped", extra={"fields": {"rounds": rounds.totals.rounds, "versions": rounds.totals.versions}})
        return rounds.totals


class _Rounds:
    """Round after round, with a pause between."""

    def __init__(
        self, compactor: Compactor, options: CompactorOptions, runtime: Runtime, told: Callable[[Appended], None]
    ) -> None:
        self._compactor = compactor
        self._options = options
        self._clock = runtime.clock
        self._told = told
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
                self._told(appended)
        except Unavailable as error:
            if self._options.once:
                raise
            _log.warning(
                "the topics could not be read, the next round is in %.0f s: %s", self._options.interval_s, error
            )
        return self._compactor.report

    def _pause_s(self, report: RoundReport) -> float:
        until_due_s = self._options.interval_s
        if report.due_at_ms is not None:
            until_due_s = (report.due_at_ms - self._clock.now_ms()) / 1_000
        return max(PAUSE_S_MIN, min(self._options.interval_s, until_due_s))


def _compactor(settings: Settings, options: CompactorOptions, runtime: Runtime, store: ObjectStore) -> Compactor:
    upkeep = build_upkeep(settings, store, runtime)
    return Compactor(store, Journal(store, runtime), upkeep, runtime, options.topics)


class _Always:
    """It is always a compactor's turn to sweep: what sweeps beside it, a broker or another compactor, does no harm."""

    async def while_it_lasts(self, work: Coroutine[None, None, None]) -> None:
        await work


@contextlib.asynccontextmanager
async def _sweeping(
    settings: Settings, options: CompactorOptions, runtime: Runtime, store: ObjectStore
) -> AsyncIterator[None]:
    """Sweep meanwhile, if the compactor is one that does."""
    always = _Always()
    sweeps = build_sweeps(settings, store, runtime, lambda: always)
    if options.sweeps:
        sweeps.start()
    try:
        yield
    finally:
        await sweeps.close()


@contextlib.asynccontextmanager
async def _opened(settings: Settings, runtime: Runtime) -> AsyncIterator[ObjectStore]:
    store = RetryingObjectStore(open_named_store(settings, runtime), runtime)
    try:
        yield store
    finally:
        await store.aclose()


@contextlib.contextmanager
def _ended_by_signals(running: asyncio.Task[None]) -> Iterator[asyncio.Task[None]]:
    """A signal cancels `running`."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, running.cancel)
    try:
        yield running
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
