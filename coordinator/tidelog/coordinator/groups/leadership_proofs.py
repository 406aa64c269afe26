"""Proves that this broker still leads the shard of a group, and remembers whether the last proof failed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tidelog.storage.errors import Overloaded, Unavailable


class LeadershipProofs:
    """`seek` as `CoordinatorSeams.prove`."""

    def __init__(self, seek: Callable[[], Awaitable[None]]) -> None:
        self._seek = seek
        self.failing = False

    async def prove(self) -> None:
        """Raises as `CoordinatorSeams.prove`. A store that is only busy does not count as a failure."""
        try:
            await self._seek()
        except Overloaded:
            raise
        except Unavailable:
            self.failing = True
            raise
        self.failing = False
