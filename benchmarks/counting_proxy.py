"""A TCP proxy that counts the bytes from clients to a server, and the bytes of the answers.

Headers count too, so that each client's traffic is complete. An S3 client signs the proxy's own address; the proxy
passes it on unchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

PIECE_BYTES = 1 << 16


class CountingProxy:
    """Listens on a free loopback port between `__enter__` and `__exit__`, in its own thread."""

    def __init__(self, target_url: str) -> None:
        target = urlsplit(target_url)
        self._target = (target.hostname or "", target.port or 80)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.asked_bytes = 0
        self.answered_bytes = 0
        self._open: set[asyncio.Task[None]] = set()
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="counting-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait(10)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        async with await asyncio.start_server(self._connected, sock=self._listening):
            self._started.set()
            await self._stopping.wait()
            for connection in self._open:
                connection.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._connect(reader, writer))
        self._open.add(connection)
        connection.add_done_callback(self._open.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        store_reader, store_writer = await asyncio.open_connection(*self._target)
        try:
            await asyncio.gather(
                self._pass_on(reader, store_writer, self._count_asked),
                self._pass_on(store_reader, writer, self._count_answered),
            )
        finally:
            for each in (writer, store_writer):
                each.transport.abort()

    def _count_asked(self, size_bytes: int) -> None:
        self.asked_bytes += size_bytes

    def _count_answered(self, size_bytes: int) -> None:
        self.answered_bytes += size_bytes

    async def _pass_on(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, count: Callable[[int], None]
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := await source.read(PIECE_BYTES):
                count(len(piece))
                target.write(piece)
                await target.drain()
        target.transport.abort()
