"""Methods of the synchronous classes as coroutines that run them in threads.

The asynchronous classes hold a synchronous one and no logic of their own (ADR 0026). A method becomes a coroutine with
the same parameters:

    class AsyncAdmin(_Held):
        topics = in_thread(Admin.topics)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Holding(Protocol):
    """An asynchronous class: `held` is the synchronous object behind it."""

    @property
    def held(self) -> Any: ...


def in_thread(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], Awaitable[T]]:
    """`method` as a coroutine of a class that holds an object of its class."""

    @wraps(method)
    async def call(self: Holding, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, self.held, *args, **kwargs)

    return call
