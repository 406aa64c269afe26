"""A TCP proxy in front of a real store that can be cut, like a network that is gone, or slowed down.

While it is cut, open connections are reset and new ones are closed after they are accepted.
"""

from __future__ import annotations

import asyncio

from tests.components.tcp_proxy import TcpProxy


class CutProxy(TcpProxy):
    """`delay_s`: the delay of each piece on its way to the store."""

    def __init__(self, target_url: str) -> None:
        super().__init__(target_url)
        self.delay_s = 0.0
        self._cut = False

    def cut(self) -> None:
        """Make the store unreachable."""
        self.loop.call_soon_threadsafe(self._set_cut, True)

    def mend(self) -> None:
        """Make it reachable again."""
        self.loop.call_soon_threadsafe(self._set_cut, False)

    def refuses(self) -> bool:
        return self._cut

    async def passes(self, piece: bytes, client: asyncio.StreamWriter, /, *, to_server: bool) -> bool:
        if to_server and self.delay_s:
            await asyncio.sleep(self.delay_s)
        return True

    def _set_cut(self, cut: bool) -> None:
        self._cut = cut
        if cut:
            self.reset_all()
