"""A TCP proxy in front of a real store that can hold single connections.

A held connection stays open, but no byte passes in either direction, as when a device on the way has forgotten it.
"""

from __future__ import annotations

import asyncio

from tests.components.tcp_proxy import TcpProxy


class HoldingProxy(TcpProxy):
    """`held`: number of requests that arrived on a connection after it was held."""

    def __init__(self, target_url: str) -> None:
        super().__init__(target_url)
        self.held = 0
        self._hold_next = False
        self._holding: set[asyncio.StreamWriter] = set()

    def hold_next(self) -> None:
        """Hold the connection that sends the next bytes."""
        self._hold_next = True

    def hold_open(self) -> None:
        """Hold all open connections; new ones pass."""
        self._holding |= self._open

    async def passes(self, piece: bytes, client: asyncio.StreamWriter, /, *, to_server: bool) -> bool:
        if to_server and self._hold_next:
            self._hold_next = False
            self._holding.add(client)
        if client not in self._holding:
            return True
        self.held += to_server
        return False
