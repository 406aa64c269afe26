"""delete-records on a manifest: the log start moves to the offset, and segments entirely below it leave the list."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.storage.record_tables import WEB
from tests.storage.segment_lists import MANIFESTS, dense, segment

from tidelog.storage.errors import Conflict
from tidelog.storage.manifests.manifest import ChangeKind, Manifest
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import Body
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.upkeep.record_deletion import CONFLICTS_MAX, delete_records, deleted_below


@given(MANIFESTS, st.integers(0, 40))
def test_only_records_below_the_offset_are_gone(manifest: Manifest, offset: int) -> None:
    offset = min(offset, manifest.cold_end)
    after = deleted_below(manifest, offset)
    assert after.log_start_offset == max(offset, manifest.log_start_offset)
    assert after.cold_end == manifest.cold_end
    if offset <= manifest.log_start_offset:
        assert after is manifest
    else:
        assert list(after.segments) == [segment for segment in manifest.segments if segment.last_offset >= offset]


async def test_it_is_one_version_that_says_so_and_none_if_nothing_changes() -> None:
    log = ManifestLog(MemoryObjectStore(), "web", WEB)
    await log.append(dense([(5, 0, 1), (5, 0, 1)]))
    after = await delete_records(log, 7)
    assert after.change is not None
    assert (after.version, after.log_start_offset, after.change.kind) == (1, 7, ChangeKind.DELETE_RECORDS)
    assert [segment.base_offset for segment in after.segments] == [5]
    for offset in (0, 7):
        assert await delete_records(log, offset) is after
    everything = await delete_records(log, 1_000)
    assert (everything.log_start_offset, everything.cold_end, everything.segments) == (10, 10, ())


class _BusyStore(MemoryObjectStore):
    """Another worker adds a segment before each of the first `rivals` creates."""

    def __init__(self) -> None:
        super().__init__()
        self.rivals = 0

    async def create(self, key: str, data: Body) -> str:
        if self.rivals:
            rivals, self.rivals = self.rivals - 1, 0
            log = ManifestLog(self, "web", WEB)
            manifest = await log.latest()
            added = segment(manifest.cold_end, 5)
            await log.append(replace(manifest, segments=(*manifest.segments, added), cold_end=added.next_offset))
            self.rivals = rivals
        return await super().create(key, data)


async def test_other_workers_versions_are_kept() -> None:
    store = _BusyStore()
    log = ManifestLog(store, "web", WEB)
    await log.append(dense([(5, 0, 1), (5, 0, 1)]))
    store.rivals = CONFLICTS_MAX - 1
    after = await delete_records(log, 5)
    assert after.log_start_offset == 5
    assert [kept.base_offset for kept in after.segments] == [5 * place for place in range(1, 2 + CONFLICTS_MAX - 1)]


async def test_rivals_that_never_rest_are_a_conflict() -> None:
    store = _BusyStore()
    log = ManifestLog(store, "web", WEB)
    await log.append(dense([(5, 0, 1)]))
    store.rivals = CONFLICTS_MAX
    with pytest.raises(Conflict):
        await delete_records(log, 5)
