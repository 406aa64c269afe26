"""Fixtures that several files of this folder use."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.coordinator.groups.classic_group import ClassicGroup
from tests.coordinator.groups.copied_cluster import Cluster
from tests.coordinator.groups.journal_scene import Scene

from tidelog.coordinator.groups.journal import journal_compaction


@pytest.fixture
def group() -> ClassicGroup:
    return ClassicGroup()


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def short_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot after 5 entries."""
    monkeypatch.setattr(journal_compaction, "ENTRIES_MAX", 5)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    await cluster.leaderships.found()
    yield cluster
    await cluster.kv.aclose()
