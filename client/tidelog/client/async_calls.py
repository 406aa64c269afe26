"""Methods of the synchronous classes as coroutines that run them in threads.

The asynchronous classes hold a synchronous one and no logic of their own (ADR 0026). A method becomes a coroutine with
the same parameters, for type checkers and `help` too, which are written only once:

    class AsyncProducer(Started[Producer]):
        flush = in_thread(Producer.flush)

        @parameters_of(Producer.send)
        async def send(self, *args: Any, **kwargs: Any) -> None: ...
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from inspect import signature
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


class Holding(Protocol):
    """An asynchronous class: `held` is the synchronous object behind it."""

    @property
    def held(self) -> Any: ...


class Started(Generic[T]):
    """An asynchronous class whose `start` makes the synchronous object behind it, which may wait for a broker."""

    def __init__(self, made: Callable[..., T], *args: Any, **kwargs: Any) -> None:
        signature(made).bind(*args, **kwargs)  # so that a wrong call fails here and not in `start`
        self._make = partial(made, *args, **kwargs)
        self._held: T | None = None

    @property
    def held(self) -> T:
        """The synchronous object behind this one."""
        if self._held is None:
            raise RuntimeError(f"{type(self).__name__} has not started: use `async with`, or await start()")
        return self._held

    async def start(self) -> None:
        """Look the topics up, or join the group. Raises `NotFound`, `Invalid`, `Unavailable`."""
        if self._held is None:
            self._held = await asyncio.to_thread(self._make)

    async def __aenter__(self) -> Self:
        await self.start()
        return self


def in_thread(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], Awaitable[T]]:
    """`method` as a coroutine of a class that holds an object of its class."""

    @wraps(method)
    async def call(self: Holding, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, self.held, *args, **kwargs)

    return call


def parameters_of(
    method: Callable[Concatenate[Any, P], Any],
) -> Callable[[Callable[Concatenate[S, ...], T]], Callable[Concatenate[S, P], T]]:
    """Declares that a method with `*args` and `**kwargs` takes the parameters of `method`."""

    def declared(own: Callable[Concatenate[S, ...], T]) -> Callable[Concatenate[S, P], T]:
        shown = signature(method).replace(return_annotation=signature(own).return_annotation)
        own.__signature__ = shown  # type: ignore[attr-defined]  # as `inspect` documents it
        return own

    return declared
