"""A TCP proxy in front of a real store that can be cut, like a network that is gone, or slowed down.

While it is cut, open connections are reset and new ones are closed after they are accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

CHUNK_BYTES = 1 << 16


class CutProxy:
    """Listens between `__enter__` and `__exit__`, in its own thread."""

    def __init__(self, target_url: str) -> None:
        target = urlsplit(target_url)
        self._target = (target.hostname or "", target.port or 80)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.delay_s = 0.0
        """The delay of each piece on its way to the store."""
        self._cut = False
        self._open: set[asyncio.StreamWriter] = set()
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="cut-proxy", daemon=True)

    def cut(self) -> None:
        """Make the store unreachable."""
        self._loop.call_soon_threadsafe(self._set_cut, True)

    def mend(self) -> None:
        """Make it reachable again."""
        self._loop.call_soon_threadsafe(self._set_cut, False)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        async with await asyncio.start_server(self._connected, sock=self._listening):
            self._started.set()
            await self._stopping.wait()
            self._set_cut(True)

    def _set_cut(self, cut: bool) -> None:
        self._cut = cut
        if cut:
            for writer in self._open:
                writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            if self._cut:
                return
            store_reader, store_writer = await asyncio.open_connection(*self._target)
            self._open.add(store_writer)
            try:
                await asyncio.gather(
                    self._pass_on(reader, store_writer, to_store=True),
                    self._pass_on(store_reader, writer, to_store=False),
                )
            finally:
                self._open.discard(store_writer)
                store_writer.transport.abort()
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, to_store: bool) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(CHUNK_BYTES):
                if to_store and self.delay_s:
                    await asyncio.sleep(self.delay_s)
                target.write(data)
                await target.drain()
        target.transport.abort()
