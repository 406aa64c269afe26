"""Waiting for the first of several events, and background tasks whose failure is always reported."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

_log = logging.getLogger(__name__)

OnFailure = Callable[[BaseException], None]


async def first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Return when one of `waits` has ended, and cancel the others. Raises the first error of those that have ended."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome


async def cancel_all(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel `tasks` and wait until they have ended."""
    tasks = tuple(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def spawn(work: Coroutine[Any, Any, None], on_failure: OnFailure) -> asyncio.Task[None]:
    """Run `work` in a task. `work` handles the errors it expects; any other error is a defect and goes to
    `on_failure`."""

    def report(done: asyncio.Task[None]) -> None:
        if not done.cancelled() and (error := done.exception()):
            on_failure(error)

    task = asyncio.create_task(work)
    task.add_done_callback(report)
    return task


def log_failure(error: BaseException) -> None:
    """Log a defect that ended a task."""
    _log.critical("a background task failed and has stopped", exc_info=error)
