"""Slices of work on the event loop: so many steps in one turn, the others in later turns.

Tasks that are woken together (a commit wakes a thousand waiting fetches) run one after the other in one turn of the
event loop, and every other request waits for all of them. Each calls `take` before its step; `take` returns at once for
the first `steps_max` of a turn, and in a later turn for the others, in their order.
"""

from __future__ import annotations

import asyncio
from collections import deque


class LoopTurns:
    """Bounds the steps of one turn to `steps_max`. Belongs to one event loop."""

    def __init__(self, steps_max: int) -> None:
        self._steps_max = steps_max
        self._steps_left = steps_max
        self._queue: deque[asyncio.Future[None]] = deque()
        self._renewing = False

    async def take(self) -> None:
        """Return in a turn that has a step left."""
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
        """A turn has passed: let the next ones go."""
        self._steps_left = self._steps_max
        while self._queue and self._steps_left:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                self._steps_left -= 1
        self._renewing = bool(self._queue)
        if self._renewing:
            loop.call_soon(self._renew, loop)
