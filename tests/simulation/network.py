"""The bucket as the processes of a simulation reach it.

    Travelling( FaultyObjectStore( Witnessed( MemoryObjectStore ) ) )

`Witnessed` reports every effect to `Truth` at the moment it happens. `Travelling` makes a request take time in both
directions, so that others run in between, and a process may stall or crash in either direction. A write that is under
way when its process crashes takes effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from tests.simulation.scheduler import Process, Scheduler, Wait
from tests.simulation.truth import Truth

from tidelog.storage.errors import NotFound, TidelogError
from tidelog.storage.layout import MANIFESTS_PREFIX
from tidelog.storage.object_store import Body, ObjectStore, list_all
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Attempt, Request, Verb, WrappingObjectStore

T = TypeVar("T")

THERE_MS_MAX = 3
UNDER_WAY_MS_MAX = 2
BACK_MS_MAX = 3
WRITES = (Verb.PUT, Verb.CREATE, Verb.DELETE)


def objects_of(store: MemoryObjectStore) -> dict[str, bytes]:
    """Everything in `store`, which never waits, so its coroutines end at their first step."""

    async def collect() -> dict[str, bytes]:
        return {info.key: (await store.get(info.key)).data async for info in list_all(store, "")}

    try:
        collect().send(None)
    except StopIteration as done:
        found: dict[str, bytes] = done.value
        return found
    raise AssertionError("a memory store waited")


class Witnessed:
    """Reports effects to `truth`; passes everything on."""

    def __init__(self, inner: ObjectStore, truth: Truth) -> None:
        self._inner = inner
        self._truth = truth
        self.url = inner.url
        self.get = inner.get
        self.list = inner.list
        self.head = inner.head
        self.aclose = inner.aclose

    async def create(self, key: str, data: Body) -> str:
        version = await self._inner.create(key, data)
        self._truth.created(key, bytes(data))
        return version

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        version = await self._inner.put(key, data, if_version=if_version)
        self._truth.put(key, bytes(data))
        return version

    async def delete(self, key: str) -> None:
        await self._inner.delete(key)
        self._truth.deleted(key)

    async def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            await self.delete(key)


class Ambush:
    """Stalls a process at the worst moments: between reading the floor and acting on it, and between deciding on a
    create and its effect. `share` is the probability (0 to 1). `ms`: the least and the most time of a
    stall. Without `creates` it stalls only after reads."""

    def __init__(self, scheduler: Scheduler, share: float, ms: tuple[int, int], creates: bool = True) -> None:
        self.share = share
        self._scheduler = scheduler
        self._ms = ms
        self._creates = creates

    def before_create(self) -> None:
        """Perhaps stall the running process, which is about to create an object."""
        if self._creates:
            self.spring()

    def spring(self) -> None:
        """Perhaps stall the running process."""
        scheduler = self._scheduler
        if scheduler.current is not None and scheduler.random.random() < self.share:
            scheduler.stall(scheduler.current, scheduler.random.randrange(*self._ms))


class Travelling(WrappingObjectStore):
    """A delay, the call, a delay."""

    def __init__(self, inner: ObjectStore, scheduler: Scheduler, ambush: Ambush) -> None:
        super().__init__(inner)
        self._scheduler = scheduler
        self._ambush = ambush

    async def delete_many(self, keys: Sequence[str]) -> None:
        """In two requests, because a store deletes the keys of a request one by one, in any order, and may stop."""
        mixed = self._scheduler.random.sample(keys, len(keys))
        first = int(self._scheduler.random.random() * (len(keys) + 1))
        for part in (mixed[:first], mixed[first:]):
            await super().delete_many(part)

    async def _send(self, request: Request, attempt: Attempt[T], /) -> T:
        sender = self._scheduler.current
        assert sender is not None, "a process sends it"
        if request.verb is Verb.CREATE:
            self._ambush.before_create()
        await self._wait(THERE_MS_MAX)
        call = partial(self._traced, sender, request, attempt) if self._scheduler.traced else attempt
        try:
            answer = await (self._by_network(sender, call) if request.verb in WRITES else call())
        except NotFound:  # the answer of a HEAD if the known version is the newest
            await self._back(request)
            raise
        await self._back(request)
        return answer

    async def _by_network(self, sender: Process, call: Attempt[T]) -> T:
        """The answer to a write, which goes on if its sender crashes or gives up."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def go_on() -> None:
            await self._wait(UNDER_WAY_MS_MAX)
            try:
                found = await call()
            except TidelogError as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(found)

        self._scheduler.spawn(self._scheduler.network, f"request of {sender.name}", go_on())
        return await answer

    async def _back(self, request: Request) -> None:
        if request.verb is not Verb.CREATE and request.key.startswith(MANIFESTS_PREFIX):
            self._ambush.spring()
        await self._wait(BACK_MS_MAX)

    async def _traced(self, sender: Process, request: Request, attempt: Attempt[T]) -> T:
        line = f"{sender.name:<12} {request.verb.name:<6} {request.key}"
        try:
            answer = await attempt()
        except Exception as error:
            self._scheduler.trace(f"{line} -> {type(error).__name__}: {error}")
            raise
        self._scheduler.trace(line)
        return answer

    async def _wait(self, ms_max: int) -> None:
        scheduler = self._scheduler
        await Wait(scheduler.now_ms + int(scheduler.random.random() * (ms_max + 1)))
