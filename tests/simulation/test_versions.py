"""The simulation's store gives equal bytes equal versions, like S3, and finds code that relies on more.

The mutation is the textbook case (ABA): a stack whose head is swapped by version. It is correct if every write has its
own version. On S3, a head that was taken and put back has its old version again, so two workers can hold one element.
"""

from __future__ import annotations

from itertools import count

import pytest
from tests.simulation.network import THERE_MS_MAX, Ambush, Travelling
from tests.simulation.scheduler import Process, Scheduler, Wait

from tidelog.storage.errors import Conflict
from tidelog.storage.object_store import Body, ObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore

SEEDS = 200
WORKERS = 3
ROUNDS = 6
ELEMENTS = 3
STALL_SHARE = 0.05
STALL_MS_MAX = 150
BOTTOM = b"bottom"


class OwnVersions(MemoryObjectStore):
    """A store that is safer than S3: every write has its own version."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = count()

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        return await super().put(key, b"%d %s" % (next(self._numbers), bytes(data)), if_version=if_version)


class Stack:
    """A stack of element names in a bucket: `head` holds the name on top, `next/<name>` the one below it."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def push(self, name: bytes) -> None:
        while True:
            top = await self._store.get("head")
            await self._store.put(f"next/{name.decode()}", _name(top.data))
            if await self._swapped(name, top.info.version):
                return

    async def pop(self) -> bytes | None:
        while True:
            top = await self._store.get("head")
            name = _name(top.data)
            if name == BOTTOM:
                return None
            below = await self._store.get(f"next/{name.decode()}")
            if await self._swapped(_name(below.data), top.info.version):
                return name

    async def _swapped(self, name: bytes, version: str) -> bool:
        try:
            await self._store.put("head", name, if_version=version)
        except Conflict:
            return False
        return True


def _name(data: bytes) -> bytes:
    return data.rpartition(b" ")[2]


class World:
    """Workers that take elements off a stack, hold them for a while, and put them back."""

    def __init__(self, seed: int, objects: MemoryObjectStore) -> None:
        self._scheduler = Scheduler(seed, disturb=self._stall)
        self._objects = objects
        self._store = Travelling(objects, self._scheduler, Ambush(self._scheduler, 0.0, 1))
        self._held: set[bytes] = set()
        self.doubled = False

    def run(self) -> bool:
        """Run; return whether two workers ever held one element."""
        self._scheduler.spawn(Process("setup"), "setup", self._set_up())
        while self._scheduler.step():
            pass
        for n in range(WORKERS):
            self._scheduler.spawn(Process(f"worker-{n}"), f"worker-{n}", self._work())
        while self._scheduler.step():
            pass
        return self.doubled

    def _stall(self, process: Process) -> None:
        if self._scheduler.random.random() < STALL_SHARE:
            self._scheduler.stall(process, self._scheduler.random.randrange(1, STALL_MS_MAX))

    async def _set_up(self) -> None:
        await self._objects.put("head", BOTTOM)
        for n in range(ELEMENTS):
            await Stack(self._objects).push(b"%d" % n)

    async def _work(self) -> None:
        stack = Stack(self._store)
        for _ in range(ROUNDS):
            name = await stack.pop()
            if name is None:
                continue
            self.doubled |= name in self._held
            self._held.add(name)
            await Wait(self._scheduler.now_ms + int(self._scheduler.random.random() * 2 * THERE_MS_MAX))
            if self.doubled:
                return
            self._held.discard(name)
            await stack.push(name)


def test_code_that_relies_on_versions_of_their_own_is_found() -> None:
    assert any(World(seed, MemoryObjectStore()).run() for seed in range(SEEDS))


def test_the_same_code_is_right_where_every_write_has_a_version_of_its_own() -> None:
    assert not any(World(seed, OwnVersions()).run() for seed in range(SEEDS))


@pytest.mark.parametrize("seed", range(5))
def test_a_seed_gives_the_same_run_again(seed: int) -> None:
    assert World(seed, MemoryObjectStore()).run() == World(seed, MemoryObjectStore()).run()
