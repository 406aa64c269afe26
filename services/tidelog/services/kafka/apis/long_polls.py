"""Ends what waits when the broker stops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from tidelog.storage.errors import LeaderUnknown

T = TypeVar("T")
STOPPING_RETRY_S = 1.0


async def until_drained(draining: asyncio.Event, waiting: Coroutine[Any, Any, T]) -> T | None:
    """What `waiting` returns, or None if `draining` is set before; then `waiting` is cancelled."""
    answer, drained = asyncio.ensure_future(waiting), asyncio.ensure_future(draining.wait())
    try:
        await asyncio.wait((answer, drained), return_when=asyncio.FIRST_COMPLETED)
        return answer.result() if answer.done() else None
    finally:
        answer.cancel()
        drained.cancel()


def stopping() -> LeaderUnknown:
    """The answer to a member of a group whose call was ended."""
    return LeaderUnknown("the broker stops: ask for the coordinator again", retry_after_s=STOPPING_RETRY_S)
