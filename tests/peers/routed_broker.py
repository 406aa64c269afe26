"""A real `LocalBroker` that a test can tell that another broker leads its shards."""

from __future__ import annotations

import asyncio
from typing import Any

from tidelog.services.broker.api.cluster import Leader, Route
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.local_broker import LocalBroker


class RoutedBroker:
    """Passes everything on except questions about places. `leader`: the leader of its shards, or None; with `here_led`
    it leads them itself. `searching`: the number of requests that wait for a route."""

    def __init__(self, local: LocalBroker) -> None:
        self.local = local
        self.here_led = True
        self.leader: Leader | None = None
        self.searching = 0
        self._changed = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.local, name)

    def led_by(self, address: str | None) -> None:
        """From now on a broker at `address` leads, or none."""
        self.here_led = False
        self.leader = Leader("other", address) if address else None
        self._tell()

    def led_here(self) -> None:
        self.here_led = True
        self._tell()

    def route(self, context: RequestContext, /, topic: str, partition: int) -> Route:
        found = self.local.route(context, topic, partition)
        return found if self.here_led else Route(found.shard, local=False, leader=self.leader)

    async def route_fetch(self, context: RequestContext, /, topic: str, partition: int, offset: int) -> Route:
        return self.route(context, topic, partition)

    async def routes_changed(self, timeout_s: float) -> None:
        self.searching += 1
        try:
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        except TimeoutError:
            return
        finally:
            self.searching -= 1

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
