"""An event loop in a thread of its own.

The S3 library holds its event loop while it builds and signs requests, parses answers and copies bodies: for 10 ms per
8 MiB body if the payload is signed. On the broker's loop that would delay all other requests. A separate thread costs
two hand-overs per call.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """The first `run` starts it. After `aclose`, `run` raises `RuntimeError`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._start_lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which runs in the thread. Cancelling the caller cancels the work."""
        try:
            loop = self._started_loop()
        except RuntimeError:
            work.close()
            raise
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._tracked(work), loop))

    async def aclose(self, last_work: Coroutine[Any, Any, None]) -> None:
        """Wait for the work under way, run `last_work`, and end the thread."""
        loop, thread = self._loop, self._thread
        if self._closed or loop is None or thread is None:
            self._closed = True
            last_work.close()
            return
        self._closed = True
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._finish(last_work), loop))
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)

    async def _tracked(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            return await work
        finally:
            self._running.discard(task)

    async def _finish(self, last_work: Coroutine[Any, Any, None]) -> None:
        while self._running:
            await asyncio.wait(self._running)
        await last_work

    def _started_loop(self) -> asyncio.AbstractEventLoop:
        with self._start_lock:
            if self._closed:
                raise RuntimeError(f"{self._name} is closed")
            if self._loop is None:
                self._loop = _new_loop()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
            return self._loop


def _new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, except on Windows: its sockets move megabytes at half the cost."""
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
