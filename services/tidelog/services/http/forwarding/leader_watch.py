"""While a leader owes an answer, look whether it still leads: one that was paused or cut off may never answer.

A leader that hands a shard over cleanly answers first, and ends its streams, so what is late by two looks is not waited
for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tidelog.storage.errors import Unavailable

LOOK_EVERY_S = 0.5
STREAM_LOOK_EVERY_S = 5.0
"""Streams are many, and lose nothing by a wait."""


class LeaderWatch:
    """A block that is cut off with `Unavailable` once `still_leads` says no twice in a row."""

    def __init__(self, still_leads: Callable[[], bool], every_s: float = LOOK_EVERY_S) -> None:
        self._still_leads = still_leads
        self._every_s = every_s
        self._limit = asyncio.timeout(None)
        self._look: asyncio.TimerHandle | None = None
        self._missed = False

    async def __aenter__(self) -> Self:
        await self._limit.__aenter__()
        self._plan()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._look:
            self._look.cancel()
        try:
            await self._limit.__aexit__(kind, error, at)
        except TimeoutError:
            raise Unavailable(
                "the shard's leader changed and its former one has not answered: outcome unknown"
            ) from None

    def _plan(self) -> None:
        self._look = asyncio.get_running_loop().call_later(self._every_s, self._check)

    def _check(self) -> None:
        leads = self._still_leads()
        if not leads and self._missed:
            self._limit.reschedule(asyncio.get_running_loop().time())
            return
        self._missed = not leads
        self._plan()
