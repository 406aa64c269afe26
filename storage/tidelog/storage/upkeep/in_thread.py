"""Runs work in a thread and waits for its end, even if the caller is cancelled: the thread must not keep using a file
that the caller closes, and that may be another file by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(executor: Executor | None, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `work` in a thread of `executor` (None: the event loop's default)."""
    running = asyncio.get_running_loop().run_in_executor(executor, partial(work, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    finally:
        if not running.done():
            await asyncio.wait((running,))
