"""Stops waiting for the answer of a leader that no longer leads: a leader that was paused or cut off may never answer.

A leader that hands over its shard answers its requests and ends its streams first. So an answer that is still missing
after two checks will not come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tidelog.storage.errors import Unavailable

CHECK_EVERY_S = 0.5
STREAM_CHECK_EVERY_S = 5.0
"""Longer, because there are many streams, and a late cut loses no data."""


class LeaderWatch:
    """A block that raises `Unavailable` when `still_leads` returns False twice in a row."""

    def __init__(self, still_leads: Callable[[], bool], every_s: float = CHECK_EVERY_S) -> None:
        self._still_leads = still_leads
        self._every_s = every_s
        self._limit = asyncio.timeout(None)
        self._next_check: asyncio.TimerHandle | None = None
        self._missed = False

    async def __aenter__(self) -> Self:
        await self._limit.__aenter__()
        self._plan()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._next_check:
            self._next_check.cancel()
        try:
            await self._limit.__aexit__(kind, error, at)
        except TimeoutError:
            raise Unavailable(
                "the leader of the shard changed, and the former leader has not answered: the outcome is unknown"
            ) from None

    def _plan(self) -> None:
        self._next_check = asyncio.get_running_loop().call_later(self._every_s, self._check)

    def _check(self) -> None:
        leads = self._still_leads()
        if not leads and self._missed:
            self._limit.reschedule(asyncio.get_running_loop().time())
            return
        self._missed = not leads
        self._plan()
