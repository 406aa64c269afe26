"""Waiting for whichever of several things comes first, and tasks that must not end unnoticed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

_log = logging.getLogger(__name__)

OnFailure = Callable[[BaseException], None]


async def first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Return when one of `waits` has ended; the others are cancelled. Raises what any of them raised by then."""
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


def spawn(work: Coroutine[Any, Any, None], on_failure: OnFailure) -> asyncio.Task[None]:
    """Run `work`, which deals with every error it expects; what it raises all the same goes to `on_failure`."""
    task = asyncio.create_task(work)
    task.add_done_callback(lambda done: _tell(done, on_failure))
    return task


def log_failure(error: BaseException) -> None:
    """The least that can be done about a defect."""
    _log.critical("a task has failed and does not go on", exc_info=error)


def _tell(done: asyncio.Task[None], on_failure: OnFailure) -> None:
    if not done.cancelled() and (error := done.exception()):
        on_failure(error)
