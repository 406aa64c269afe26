"""The timer of a coordinator: it turns when the next group is due, and at least every `WAKE_S`.

It runs only while it is needed. A turn that comes much later than planned shows that this process was paused, or
starved (`late`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

from tidelog.coordinator.groups.due_groups import DueGroups
from tidelog.coordinator.groups.group_step import Moment
from tidelog.storage.runtime import Clock

WAKE_S = 1.0
REST_MS = 20
"""Between two turns: what is due meanwhile is done together."""
PAUSE_S = 2.0
"""A timer that is so much later than planned was paused."""

_log = logging.getLogger(__name__)


class GroupTimer:
    """Calls `turn` until it returns False. While `away`, groups are not due."""

    def __init__(self, clock: Clock, turn: Callable[[Moment], Awaitable[bool]], away: Callable[[], bool]) -> None:
        self._clock = clock
        self._turn = turn
        self._away = away
        self._due = DueGroups()
        self._task: asyncio.Task[None] | None = None
        self._earlier = asyncio.Event()
        self._wakes_at_ms = 0
        self._seen_ms = 0

    def ensure(self) -> None:
        """Let the timer run."""
        if self._task is None or self._task.done():
            self._seen_ms = self._now_ms()
            self._task = asyncio.create_task(self._run())

    def schedule(self, group: str, due_ms: int | None) -> None:
        """`group` is due at `due_ms`, on the monotonic clock; None: never."""
        self._due.schedule(group, due_ms)
        next_ms = self._due.next_ms
        if next_ms is not None and next_ms < self._wakes_at_ms:
            self._earlier.set()

    def due(self, moment: Moment) -> Iterator[str]:
        """The groups that are due, and perhaps some that were. Each has to be scheduled anew."""
        return self._due.pop_until(moment.monotonic_ms)

    def late(self, moment: Moment) -> bool:
        """Whether this process did not run for a while before `moment`."""
        return moment.monotonic_ms - self._seen_ms > (WAKE_S + PAUSE_S) * 1000

    def on_time(self, moment: Moment) -> None:
        """This process ran at `moment`, and a pause before it was noticed."""
        self._seen_ms = moment.monotonic_ms

    def end(self) -> None:
        if self._task and self._task is not asyncio.current_task():
            self._task.cancel()

    async def close(self) -> None:
        self.end()
        if self._task:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        needed = True
        while needed:
            await self._sleep()
            moment = Moment(self._now_ms(), self._clock.now_ms())
            try:
                needed = await self._turn(moment)
            except Exception:
                _log.exception("the timer of groups failed; it continues")
            self._seen_ms = max(self._seen_ms, moment.monotonic_ms)

    async def _sleep(self) -> None:
        self._earlier.clear()
        now_ms = self._now_ms()
        next_ms = None if self._away() else self._due.next_ms
        latest_ms = now_ms + int(WAKE_S * 1000)
        self._wakes_at_ms = latest_ms if next_ms is None else min(latest_ms, max(next_ms, now_ms + REST_MS))
        waits = (
            asyncio.ensure_future(self._clock.sleep(max(0.0, (self._wakes_at_ms - now_ms) / 1000))),
            asyncio.ensure_future(self._earlier.wait()),
        )
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._wakes_at_ms = 0
            for wait in waits:
                wait.cancel()

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)
