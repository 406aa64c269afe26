"""Proves by the log that this broker leads a shard (docs/adr/0017-linearizable-reads.md).

A leader that another broker has replaced does not know it as long as it is cut off from etcd. Its memory then ends
where its own commits ended. So before it answers with the end of a log without a lease, it asks the log whether
another leader has begun.

- An *ask* is a request to the log whose success proves leadership at a moment after it was sent: a check (`overtaken`),
  or the commit of an entry, which succeeds only while no other leader has begun.
- A call is covered by an ask that was sent after the call began, never by an earlier one.
- At most one check is under way. Calls that begin while it is under way share the one after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tidelog.services.broker.read.single_flight import SingleFlight
from tidelog.storage.errors import Unavailable
from tidelog.storage.runtime import Clock

CHECK_TIMEOUT_S = 2.0
"""How long a check may take before the calls that need it are answered with `Unavailable`."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to the log: how many came before it, and when it was sent."""

    number: int
    sent_s: float


class LeadershipProof:
    """Of one leader of one shard. `overtaken` reads the log: whether another leader has begun since this one."""

    def __init__(self, overtaken: Callable[[], Awaitable[bool]], clock: Clock) -> None:
        self._overtaken = overtaken
        self._clock = clock
        self._asked = 0
        self._latest = Ask(0, float("-inf"))
        self._checks: SingleFlight[None, bool] = SingleFlight()

    def ask(self) -> Ask:
        """A request to the log is about to be sent."""
        self._asked += 1
        return Ask(self._asked, self._clock.monotonic())

    def proved(self, ask: Ask) -> None:
        """`ask` was answered, and this broker led the shard at a moment after it was sent."""
        if ask.number > self._latest.number:
            self._latest = ask

    async def led(self, within_s: float = 0.0) -> bool:
        """Whether this broker led the shard at a moment after this call began, or, if a proof of that is at hand,
        `within_s` before it. Raises `Unavailable` if the log cannot be asked."""
        if within_s and self._clock.monotonic() - self._latest.sent_s < within_s:
            return True
        asked_before = self._asked
        while self._latest.number <= asked_before:
            if not await self._checks.run(None, self._check):
                return False
        return True

    async def _check(self) -> bool:
        ask = self.ask()
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                overtaken = await self._overtaken()
        except TimeoutError:
            raise Unavailable("the log did not say in time whether another broker leads the shard") from None
        if not overtaken:
            self.proved(ask)
        return not overtaken
