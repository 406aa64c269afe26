"""Fixtures of the broker's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    """A fresh store of each embedded kind."""
    yield MemoryObjectStore() if request.param == "memory" else LocalObjectStore(tmp_path / "bucket")
