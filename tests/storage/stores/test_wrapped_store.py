"""The wrappers keep the contract of the store they wrap."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.storage.stores.conformance import ObjectStoreConformance
from tests.storage.stores.faulty import FaultPlan, FaultyObjectStore
from tests.storage.stores.manual_time import manual_runtime

from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.rationing import ThrottledObjectStore
from tidelog.storage.stores.retrying import RetryingObjectStore


class TestEveryWrapperAtOnce(ObjectStoreConformance):
    @pytest.fixture
    async def store(self) -> AsyncIterator[ObjectStore]:
        _, runtime = manual_runtime()
        faulty = FaultyObjectStore(MemoryObjectStore(runtime.clock), FaultPlan(), runtime)
        store = RetryingObjectStore(CountingObjectStore(faulty), runtime)
        yield store
        await store.aclose()


class TestRetryingOverFaultsWithoutEffect(ObjectStoreConformance):
    """Faults without an effect are invisible above the retries."""

    @pytest.fixture
    async def store(self) -> AsyncIterator[ObjectStore]:
        _, runtime = manual_runtime(seed=7)
        plan = FaultPlan(unavailable=0.2, contended=0.2, slow=0.2)
        store = RetryingObjectStore(FaultyObjectStore(MemoryObjectStore(runtime.clock), plan, runtime), runtime)
        yield store
        await store.aclose()


class TestThrottled(ObjectStoreConformance):
    @pytest.fixture
    async def store(self) -> AsyncIterator[ObjectStore]:
        _, runtime = manual_runtime()
        store = ThrottledObjectStore(MemoryObjectStore(runtime.clock), runtime, 1_000)
        yield store
        await store.aclose()
