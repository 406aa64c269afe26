"""Runs the works of one background loop side by side, at most one for each key, within a bound.

A work that fails is logged, and its key is left alone for a pause, which its error decides. The others go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from tidelog.storage.errors import TidelogError
from tidelog.storage.runtime import Clock

K = TypeVar("K", bound=Hashable)

_log = logging.getLogger(__name__)


class SideBySide(Generic[K]):
    """`name`: the subject of the log lines about failed works. `pause_s`: the pause after an error, in seconds."""

    def __init__(self, name: str, clock: Clock, *, at_once: int, pause_s: Callable[[Exception], float]) -> None:
        self._name = name
        self._clock = clock
        self._pause_s = pause_s
        self._running: dict[K, asyncio.Task[None]] = {}
        self._paused_until_s: dict[K, float] = {}
        self.at_once = at_once

    def __len__(self) -> int:
        """How many are running."""
        return len(self._running)

    def may_begin(self, key: K) -> bool:
        """Whether a work for `key` may begin now: none is running for it, and the last one did not just fail."""
        return key not in self._running and self._clock.monotonic() >= self._paused_until_s.get(key, 0.0)

    @property
    def has_room(self) -> bool:
        return len(self._running) < self.at_once

    def begin(self, key: K, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` beside the others."""
        assert self.may_begin(key)
        self._paused_until_s.pop(key, None)
        self._running[key] = running = asyncio.create_task(self._run(key, work))
        running.add_done_callback(lambda _: self._running.pop(key))

    async def one_ended(self, timeout_s: float) -> None:
        """Return when a work has ended, or after `timeout_s`."""
        if self._running:
            await asyncio.wait(self._running.values(), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)

    async def all_ended(self) -> None:
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def close(self) -> None:
        """Cancel all."""
        for task in self._running.values():
            task.cancel()
        await self.all_ended()

    async def _run(self, key: K, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:
            pause_s = self._pause_s(error)
            self._paused_until_s[key] = self._clock.monotonic() + pause_s
            defect = None if isinstance(error, TidelogError) else error
            level = logging.ERROR if defect else logging.WARNING
            _log.log(level, "%s %s failed, next in %.0f s: %s", self._name, key, pause_s, error, exc_info=defect)
