"""Repeats a call until it reaches the leader of its shard, or its time is over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tidelog.services.broker.api.broker import Broker
from tidelog.storage.errors import LeaderUnknown, NotLeader
from tidelog.storage.runtime import Clock

T = TypeVar("T")

PAUSE_FIRST_S = 0.02
PAUSE_MAX_S = 0.25
"""The call is repeated even if this broker learns of no change: the peer may know more."""
CUT_OFF_TIMEOUT_S = 1.0
"""The bound while etcd cannot be reached and this broker cannot learn of a new leader: another broker may know it."""


@dataclass(frozen=True)
class LeaderSearch:
    """Searches for `timeout_s`. 0 tries once, as for the request of a peer, which searches itself."""

    broker: Broker
    clock: Clock
    timeout_s: float

    async def run(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat `attempt` while it raises `NotLeader` or `LeaderUnknown`; when the time is over, that error is raised.
        Between two attempts it waits until routes change, or for a growing pause."""
        began_s, pause_s = self.clock.monotonic(), PAUSE_FIRST_S
        while True:
            try:
                return await attempt()
            except (NotLeader, LeaderUnknown):
                left_s = began_s + self._bound_s() - self.clock.monotonic()
                if left_s <= 0:
                    raise
            await self.broker.routes_changed(min(pause_s, left_s))
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _bound_s(self) -> float:
        return self.timeout_s if self.broker.hears_of_leaders() else min(self.timeout_s, CUT_OFF_TIMEOUT_S)
