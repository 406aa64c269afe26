"""Bounds the steps that waiting tasks take in one turn of the event loop.

A commit may wake a thousand waiting fetches. They would all run in one turn of the event loop, and every other request
would wait for them. Each task calls `take` before its step: `take` returns at once for the first `steps_max` of a turn,
and in later turns for the others, in their order.
"""

from __future__ import annotations

import asyncio
from collections import deque


class LoopTurns:
    """At most `steps_max` steps per turn. Belongs to one event loop."""

    def __init__(self, steps_max: int) -> None:
        self._steps_max = steps_max
        self._steps_left = steps_max
        self._queue: deque[asyncio.Future[None]] = deque()
        self._renewing = False

    async def take(self) -> None:
        """Wait for a turn that has a step left."""
        loop = asyncio.get_running_loop()
        if not self._renewing:
            self._renewing = True
            loop.call_soon(self._renew, loop)
        if self._steps_left and not self._queue:
            self._steps_left -= 1
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._queue.append(turn)
        await turn

    def _renew(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the next tasks go; a turn has passed."""
        self._steps_left = self._steps_max
        while self._queue and self._steps_left:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                self._steps_left -= 1
        self._renewing = bool(self._queue)
        if self._renewing:
            loop.call_soon(self._renew, loop)
