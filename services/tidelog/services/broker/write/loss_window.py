"""What a crash would lose of a shard's records that were acknowledged with ``acks=1``, as a time that is bounded.

A shard's *loss window* reaches from when its oldest uncommitted batch was begun until now: all that a crash loses was
taken in it. While the store answers, each commit closes it. When the store stops answering it grows, so an answer to
``acks=1`` waits once it is as wide as ``acks1.loss.max.ms``. Records that were acknowledged by then, and only those,
are at risk.
"""

from __future__ import annotations

import asyncio

from tidelog.services.broker.write.append_buffer import Outcome
from tidelog.storage.runtime import Clock


class LossWindow:
    """Of one shard. Batches settle in the order in which they were begun."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_s: dict[Outcome, float] = {}

    def took(self, outcome: Outcome) -> None:
        """Records were put into the batch that ends with `outcome`."""
        if outcome not in self._began_s:
            self._began_s[outcome] = self._clock.monotonic()

    def settled(self, outcome: Outcome) -> None:
        """The batch is committed, or has failed."""
        self._began_s.pop(outcome, None)

    def is_wider(self, bound_s: float) -> bool:
        """Whether the oldest uncommitted batch was begun `bound_s` ago or earlier."""
        began_s = next(iter(self._began_s.values()), None)
        return began_s is not None and self._clock.monotonic() - began_s >= bound_s

    async def narrowed(self, bound_s: float, outcome: Outcome, timeout_s: float) -> None:
        """Return once the window is narrower than `bound_s` or `outcome` has come; at the latest after `timeout_s`."""
        give_up_s = self._clock.monotonic() + timeout_s
        while not outcome.done() and self.is_wider(bound_s) and (left_s := give_up_s - self._clock.monotonic()) > 0:
            await asyncio.wait((next(iter(self._began_s)),), timeout=left_s)
