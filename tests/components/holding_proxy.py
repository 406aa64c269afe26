"""A TCP proxy in front of a real store that can hold single connections.

A held connection stays open, but no byte passes in either direction, as when a device on the way has forgotten it.
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


class HoldingProxy:
    """Listens between `__enter__` and `__exit__`, in its own thread."""

    def __init__(self, target_url: str) -> None:
        target = urlsplit(target_url)
        self._target = (target.hostname or "", target.port or 80)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.accepted = 0
        """Number of connections so far."""
        self.held = 0
        """Number of requests that arrived on a connection after it was held."""
        self._hold_next = False
        self._holding: set[asyncio.StreamWriter] = set()
        self._open: set[asyncio.StreamWriter] = set()
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="holding-proxy", daemon=True)

    def hold_next(self) -> None:
        """Hold the connection that sends the next bytes."""
        self._hold_next = True

    def hold_open(self) -> None:
        """Hold all open connections; new ones pass."""
        self._holding |= self._open

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
            for writer in self._open:
                writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._open.add(writer)
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(*self._target)
            await asyncio.gather(
                self._pass(reader, upstream_writer, writer, of_client=True),
                self._pass(upstream_reader, writer, writer, of_client=False),
            )
        except OSError:
            writer.transport.abort()
        finally:
            self._open.discard(writer)

    async def _pass(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, client: asyncio.StreamWriter, *, of_client: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while piece := await source.read(CHUNK_BYTES):
                if of_client and self._hold_next:
                    self._hold_next = False
                    self._holding.add(client)
                if client in self._holding:
                    self.held += of_client
                    continue
                sink.write(piece)
                await sink.drain()
        sink.close()
