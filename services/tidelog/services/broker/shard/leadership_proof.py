"""Proves by the log that this broker leads a shard (docs/adr/0017-linearizable-reads.md).

Hazard: a leader that another broker has replaced does not know it while it is cut off from etcd. In its memory the log
ends where its own commits ended.
Defence: before it answers with the end of a log without a lease, it checks in the log whether another leader has begun.

- A *probe* is a request to the log whose success proves leadership at a moment after it was sent: a check
  (`overtaken`), or the commit of an entry, which succeeds only while no other leader has begun.
- A call needs a probe that was sent after the call began.
- At most one check is under way. Calls that begin meanwhile share the next one.

How delete-records uses the age of a proof ------------------------------------------ Once delete-records is answered,
no broker gives out the deleted records. Brokers cannot notify each other of that, since one may be cut off from etcd
and its peers. Instead, every reader limits the age of what it knows:

1. A reader of segments that does not lead the shard (`cluster.cold_reader`) uses a manifest that was the newest at a
   moment at most `READERS_TRUST_S` before its call began. A leader uses its memory if it led the shard at such a moment
   (`ShardSet.prove_led_lately`). Both count from before they sent the request, on their own monotonic clock.
2. The leader appends the manifest with the new log start, waits `DELETION_WAIT_S`, proves that it still leads, and
   answers.
3. So a call that begins after the answer uses a manifest or a leadership that was requested after the append. A later
   leader began after the proof and reads the manifest after that.

The wait is twice the trust, because the clock of one broker may run twice as fast as another's. Clocks must also count
the time while their machine is suspended, as in `storage.wal.floor_trust`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tidelog.storage.errors import Unavailable
from tidelog.storage.runtime import Clock
from tidelog.storage.single_flight import SingleFlight

CHECK_TIMEOUT_S = 2.0
"""A check that takes longer fails the calls that need it with `Unavailable`."""

READERS_TRUST_S = 0.5
DELETION_WAIT_S = 2 * READERS_TRUST_S


@dataclass(frozen=True, slots=True)
class Probe:
    """A request to the log: how many were sent before it, and when it was sent."""

    number: int
    sent_s: float


class LeadershipProof:
    """For one leader of one shard. `overtaken` reads the log: whether another leader has begun since this one."""

    def __init__(self, overtaken: Callable[[], Awaitable[bool]], clock: Clock) -> None:
        self._overtaken = overtaken
        self._clock = clock
        self._sent = 0
        self._latest = Probe(0, float("-inf"))
        self._checks: SingleFlight[None, bool] = SingleFlight()

    def begin(self) -> Probe:
        """Call it just before a request to the log is sent."""
        self._sent += 1
        return Probe(self._sent, self._clock.monotonic())

    def succeeded(self, probe: Probe) -> None:
        """`probe` was answered: this broker led the shard at a moment after it was sent."""
        if probe.number > self._latest.number:
            self._latest = probe

    async def led(self, within_s: float = 0.0) -> bool:
        """Whether this broker led the shard at a moment after this call began, or at most `within_s` before it if there
        is a proof of that. Raises `Unavailable` if the log cannot be read."""
        if within_s and self._clock.monotonic() - self._latest.sent_s < within_s:
            return True
        sent_before = self._sent
        while self._latest.number <= sent_before:
            if not await self._checks.run(None, self._check):
                return False
        return True

    async def _check(self) -> bool:
        probe = self.begin()
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                overtaken = await self._overtaken()
        except TimeoutError:
            raise Unavailable(
                f"the store did not answer within {CHECK_TIMEOUT_S:.0f} s whether another broker leads the shard. Retry"
            ) from None
        if not overtaken:
            self.succeeded(probe)
        return not overtaken
