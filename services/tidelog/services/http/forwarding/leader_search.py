"""A request's look for the leader of its shard: try, wait until routes change, try again, until time is over."""

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
"""Another look is worth its cost even if this broker hears of no change: the peer may know more."""
CUT_OFF_PATIENCE_S = 1.0
"""How long a request looks where no news of a leader can come, since etcd is not reached: another broker may know."""


@dataclass(frozen=True)
class LeaderSearch:
    """Looks for `timeout_s`; 0 tries once, as for a peer's request: its sender looks."""

    broker: Broker
    clock: Clock
    timeout_s: float

    async def run(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """What `attempt` gives once it does not raise `NotLeader` or `LeaderUnknown`; its last such error if it always
        does."""
        began_s, pause_s = self.clock.monotonic(), PAUSE_FIRST_S
        while True:
            try:
                return await attempt()
            except (NotLeader, LeaderUnknown):
                left_s = began_s + self._patience_s() - self.clock.monotonic()
                if left_s <= 0:
                    raise
            await self.broker.routes_changed(min(pause_s, left_s))
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _patience_s(self) -> float:
        return self.timeout_s if self.broker.hears_of_leaders() else min(self.timeout_s, CUT_OFF_PATIENCE_S)
