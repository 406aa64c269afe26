"""The store on a local directory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.conformance import ObjectStoreConformance
from tidelog.storage.stores.local import LocalObjectStore


class TestLocalObjectStore(ObjectStoreConformance):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[ObjectStore]:
        store = LocalObjectStore(tmp_path / "made" / "here")
        yield store
        await store.aclose()
