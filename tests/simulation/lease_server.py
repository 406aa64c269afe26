"""A coordinator that grants one lease, and a process's knowledge of it.

It only decides who claims when: with it, leaders change rarely and in order, and sometimes it is down. No commit asks
for a lease.

The server's clock is true time. An answer can be lost, and the server can be down for a while; then it grants nothing,
and granted leases expire.
"""

from __future__ import annotations

from tests.simulation.scheduler import Scheduler, Wait

from tidelog.storage.errors import Unavailable
from tidelog.storage.runtime import Clock

LEASE_MS = 200
_WAY_MS_MAX = 4
_LOST_SHARE = 0.02


class LeaseServer:
    """At most one holder at any true time."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._holder = ""
        self._term = 0
        self._expires_ms = 0
        self.down_from_ms = 0
        self.down_until_ms = 0

    async def grant(self, name: str) -> int:
        """Grant or renew the lease for `LEASE_MS` from the moment the server gets the request. Returns the term: a new
        one if `name` did not hold the lease without a break, or 0 if another holds it. Raises `Unavailable`."""
        await self._way()
        now_ms = self._scheduler.now_ms
        if self.down_from_ms <= now_ms < self.down_until_ms:
            raise Unavailable("the coordinator is down")
        expired = self._expires_ms <= now_ms
        granted = expired or self._holder == name
        if granted:
            self._term += expired
            self._holder = name
            self._expires_ms = now_ms + LEASE_MS
        term = self._term if granted else 0
        await self._way()
        if self._scheduler.random.random() < _LOST_SHARE:
            raise Unavailable("the coordinator's answer was lost")
        return term

    async def _way(self) -> None:
        await Wait(self._scheduler.now_ms + int(self._scheduler.random.random() * (_WAY_MS_MAX + 1)))


class KnownLease:
    """What a process knows: its term, fresh for `LEASE_MS` by its own clock from before the renewal was *sent*."""

    def __init__(self, server: LeaseServer, name: str, clock: Clock) -> None:
        self._server = server
        self._name = name
        self._clock = clock
        self._fresh_until_s = float("-inf")
        self._term = 0

    def fresh_term(self) -> int:
        """The term that is fresh now, or 0."""
        return self._term if self._clock.monotonic() < self._fresh_until_s else 0

    async def renew(self) -> None:
        """Ask once. A refusal ends the knowledge; a missing answer changes nothing."""
        sent_s = self._clock.monotonic()
        try:
            self._term = await self._server.grant(self._name)
        except Unavailable:
            return
        self._fresh_until_s = sent_s + LEASE_MS / 1000

    async def keep_alive(self) -> None:
        """Renew at a third of the time to live, without end."""
        while True:
            await self.renew()
            await self._clock.sleep(LEASE_MS / 3000)
