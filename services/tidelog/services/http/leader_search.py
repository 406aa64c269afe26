"""A request's look for the leader of its shard: try, wait until routes change, try again, until time is over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tidelog.services.broker.api import Broker
from tidelog.storage.errors import LeaderUnknown, NotLeader
from tidelog.storage.runtime import Clock

T = TypeVar("T")

PAUSE_FIRST_S = 0.02
PAUSE_MAX_S = 0.25
"""Another look is worth its cost even if this broker hears of no change: the peer may know more."""


@dataclass(frozen=True)
class LeaderSearch:
    """Looks for `timeout_s`; 0 tries once, as for a peer's request: its sender looks."""

    broker: Broker
    clock: Clock
    timeout_s: float

    async def run(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """What `attempt` gives once it does not raise `NotLeader` or `LeaderUnknown`; its last such error if it always
        does."""
        give_up_at_s, pause_s = self.clock.monotonic() + self.timeout_s, PAUSE_FIRST_S
        while True:
            try:
                return await attempt()
            except (NotLeader, LeaderUnknown):
                left_s = give_up_at_s - self.clock.monotonic()
                if left_s <= 0:
                    raise
            await self.broker.routes_changed(min(pause_s, left_s))
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
