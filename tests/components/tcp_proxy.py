"""A TCP proxy in front of a real server, in its own thread. Subclasses decide what happens to each piece of bytes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

PIECE_BYTES = 1 << 16
END_S_MAX = 1.0
"""A connection whose bytes are held back for longer is cancelled."""


class TcpProxy:
    """Listens on a free loopback port between `__enter__` and `__exit__`. `url` is where clients reach it, `accepted`
    the number of connections so far."""

    def __init__(self, target_url: str) -> None:
        target = urlsplit(target_url)
        self._target = (target.hostname or "", target.port or 80)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.accepted = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._started = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="tcp-proxy", daemon=True)

    async def passes(self, piece: bytes, client: asyncio.StreamWriter, /, *, to_server: bool) -> bool:
        """Whether `piece`, of the connection to `client`, goes on. Runs on the proxy's event loop."""
        return True

    def refuses(self) -> bool:
        """Whether a new connection is closed at once."""
        return False

    def reset_all(self) -> None:
        """Reset every open connection."""
        for writer in self._open:
            writer.transport.abort()

    def __enter__(self) -> Self:
        self.thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.loop.call_soon_threadsafe(self.stopping.set)
        self.thread.join()

    async def _serve(self) -> None:
        self.loop, self.stopping = asyncio.get_running_loop(), asyncio.Event()
        async with await asyncio.start_server(self._connected, sock=self._listening) as server:
            self._started.set()
            await self.stopping.wait()
            self._stop_accepting()
            await self._end_connections()
            server.close()

    def _stop_accepting(self) -> None:
        """Not by `Server.close`: in Python 3.11 a connection that was accepted in the same turn of the loop then fails
        an assertion in asyncio (`Server._attach`), and its transport is never closed (python/cpython#109564)."""
        self.loop.remove_reader(self._listening)

    async def _end_connections(self) -> None:
        """Also those that were accepted a moment ago: a task that is cancelled before it begins closes nothing."""
        until_s = self.loop.time() + END_S_MAX
        while self.loop.time() < until_s and (tasks := asyncio.all_tasks() - {asyncio.current_task()}):
            self.reset_all()
            await asyncio.wait(tasks, timeout=0.05)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._open.add(writer)
        try:
            if self.refuses():
                return
            server_reader, server_writer = await asyncio.open_connection(*self._target)
            self._open.add(server_writer)
            try:
                await asyncio.gather(
                    self._forward(reader, server_writer, writer, to_server=True),
                    self._forward(server_reader, writer, writer, to_server=False),
                )
            finally:
                self._open.discard(server_writer)
                server_writer.transport.abort()
        except OSError:
            pass  # the server is not there
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _forward(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, client: asyncio.StreamWriter, *, to_server: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while piece := await source.read(PIECE_BYTES):
                if await self.passes(piece, client, to_server=to_server):
                    sink.write(piece)
                    await sink.drain()
        sink.close()
