"""A TCP proxy that counts the bytes from clients to a server, and the bytes of the answers.

Headers count too, so that each client's traffic is complete. An S3 client signs the proxy's own address; the proxy
passes it on unchanged.
"""

from __future__ import annotations

import asyncio

from tests.components.tcp_proxy import TcpProxy


class CountingProxy(TcpProxy):
    """`asked_bytes` went to the server, `answered_bytes` came back."""

    def __init__(self, target_url: str) -> None:
        super().__init__(target_url)
        self.asked_bytes = 0
        self.answered_bytes = 0

    async def passes(self, piece: bytes, _client: asyncio.StreamWriter, /, *, to_server: bool) -> bool:
        if to_server:
            self.asked_bytes += len(piece)
        else:
            self.answered_bytes += len(piece)
        return True
