"""The store in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.storage.stores.conformance import ObjectStoreConformance

from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore


class TestMemoryObjectStore(ObjectStoreConformance):
    @pytest.fixture
    async def store(self) -> AsyncIterator[ObjectStore]:
        store = MemoryObjectStore()
        yield store
        await store.aclose()


async def test_a_caller_that_reuses_its_buffer_changes_nothing() -> None:
    store, buffer = MemoryObjectStore(), bytearray(b"first")
    await store.create("a", memoryview(buffer))
    buffer[:] = b"other"
    assert (await store.get("a")).data == b"first"
