"""The running loop of code that no asyncio loop runs: what it gives to a thread runs at once, in its place. So product
code that encodes in a thread can be stepped by the scheduler, and a seed stays a whole interleaving."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any


class _Done:
    """An awaitable that has its value."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __await__(self) -> Generator[None, None, object]:
        return self._value
        yield


class _InlineLoop(asyncio.AbstractEventLoop):
    def run_in_executor(self, executor: object, func: Callable[..., object], *args: Any) -> Any:  # type: ignore[override]
        return _Done(func(*args))


_LOOP = _InlineLoop()


@contextmanager
def inline_threads() -> Iterator[None]:
    """Step a coroutine inside of it."""
    asyncio.events._set_running_loop(_LOOP)
    try:
        yield
    finally:
        asyncio.events._set_running_loop(None)
