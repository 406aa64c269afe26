"""A store that can hold back writes and reads of WAL entries, so that a test can look at the state meanwhile."""

import asyncio
from typing import TypeVar

from tidelog.storage.layout import WAL_PREFIX
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.wrapping import Attempt, Request, Verb, WrappingObjectStore

T = TypeVar("T")


class GatedObjectStore(WrappingObjectStore):
    """Wraps `inner`. While `gate` is not set, creates under a prefix wait."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.gate = asyncio.Event()
        self.gate.set()
        self._held_prefix = WAL_PREFIX
        self.arrived = asyncio.Event()
        self.read_gate = asyncio.Event()
        self.read_gate.set()
        self.read_arrived = asyncio.Event()

    def hold(self, prefix: str = WAL_PREFIX) -> None:
        """Hold back creates under `prefix` from now on."""
        self._held_prefix = prefix
        self.arrived.clear()
        self.gate.clear()

    def hold_reads(self) -> None:
        """Hold back reads of WAL entries until `read_gate` is set."""
        self.read_arrived.clear()
        self.read_gate.clear()

    async def _send(self, request: Request, attempt: Attempt[T], /) -> T:
        if request.verb is Verb.GET and request.key.startswith(WAL_PREFIX) and not self.read_gate.is_set():
            self.read_arrived.set()
            await self.read_gate.wait()
        if request.verb is Verb.CREATE and request.key.startswith(self._held_prefix) and not self.gate.is_set():
            self.arrived.set()
            await self.gate.wait()
        return await attempt()

    async def aclose(self) -> None:
        self.gate.set()
        self.read_gate.set()
        await super().aclose()
