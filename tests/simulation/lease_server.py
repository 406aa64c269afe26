"""A coordinator that grants one lease, and a process's knowledge of it.

The server's clock is true time. An answer can be lost, and the server can be down for a while; it grants nothing then,
and what it granted runs out.
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
        self._expires_ms = 0
        self.down_from_ms = 0
        self.down_until_ms = 0

    async def grant(self, name: str) -> bool:
        """Give or renew the lease for `LEASE_MS` from the moment the server hears of it. Raises `Unavailable`."""
        await self._way()
        now_ms = self._scheduler.now_ms
        if self.down_from_ms <= now_ms < self.down_until_ms:
            raise Unavailable("the coordinator is down")
        granted = self._holder == name or self._expires_ms <= now_ms
        if granted:
            self._holder = name
            self._expires_ms = now_ms + LEASE_MS
        await self._way()
        if self._scheduler.random.random() < _LOST_SHARE:
            raise Unavailable("the coordinator's answer was lost")
        return granted

    async def _way(self) -> None:
        await Wait(self._scheduler.now_ms + int(self._scheduler.random.random() * (_WAY_MS_MAX + 1)))


class KnownLease:
    """Implements `Lease`: fresh for `LEASE_MS` by the process's own clock from before the renewal was *sent*."""

    def __init__(self, server: LeaseServer, name: str, clock: Clock) -> None:
        self._server = server
        self._name = name
        self._clock = clock
        self._fresh_until_s = float("-inf")

    def is_fresh(self) -> bool:
        return self._clock.monotonic() < self._fresh_until_s

    async def renew(self) -> bool:
        """Ask once; whether the lease is held now. A refusal ends what was known."""
        sent_s = self._clock.monotonic()
        try:
            granted = await self._server.grant(self._name)
        except Unavailable:
            return self.is_fresh()
        self._fresh_until_s = sent_s + LEASE_MS / 1000 if granted else float("-inf")
        return granted

    async def keep_alive(self) -> None:
        """Renew at a third of the time to live, for ever."""
        while True:
            await self.renew()
            await self._clock.sleep(LEASE_MS / 3000)
