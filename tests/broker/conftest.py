"""Fixtures of the broker's tests."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """A fresh store of each embedded kind."""
    return MemoryObjectStore() if request.param == "memory" else LocalObjectStore(tmp_path / "bucket")


@pytest.fixture(params=["memory", "local"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], ObjectStore]:
    """A function that opens the same bucket again at each call, like a process that starts."""
    if request.param == "local":
        return lambda: LocalObjectStore(tmp_path / "bucket")
    kept = MemoryObjectStore()
    return lambda: kept
