"""The tools of a bucket bound what they keep in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
from tests.storage.archive_scenes import keys
from tests.storage.sweep_scenes import NO_GRACE, sweep_of

from tidelog.storage.bucket.copy import transfer
from tidelog.storage.bucket.copy.transfer import Transfer
from tidelog.storage.bucket.finding import error
from tidelog.storage.bucket.sweep import bucket_sweep
from tidelog.storage.bucket.sweep.sweep_report import Reason
from tidelog.storage.layout import STAGING_PREFIX, staging_prefix
from tidelog.storage.object_store import LIST_PAGE_MAX
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.partial_uploads import PartialUpload


def test_a_copy_names_the_first_faults_and_counts_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "DAMAGED_MAX", 3)
    copy = Transfer(MemoryObjectStore(), MemoryObjectStore())
    for number in (0, 1, 1, 2, 3, 4):
        copy.note_damage(error(f"segment-{number}", "is missing"))
    assert [finding.key for finding in copy.report.damaged] == [f"segment-{number}" for number in range(3)]
    assert (copy.report.more_damaged, copy.report.whole) == (2, False)


class PagedDeletes(MemoryObjectStore):
    """Notes how many objects each request deletes."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[int] = []

    async def delete_many(self, keys: Sequence[str]) -> None:
        self.deleted.append(len(keys))
        await super().delete_many(keys)


async def test_a_large_staging_area_is_deleted_page_by_page() -> None:
    store = PagedDeletes()
    for number in range(LIST_PAGE_MAX + 2):
        await store.put(f"{staging_prefix('dead')}task-{number:05}", b"x")
    strays = [stray async for stray in sweep_of(store, NO_GRACE).strays()]
    assert len([stray for stray in strays if stray.reason is Reason.STAGING]) == LIST_PAGE_MAX + 2
    assert store.deleted == [LIST_PAGE_MAX, 2]
    assert await keys(store, STAGING_PREFIX) == []


class StoreOfPartialUploads(MemoryObjectStore):
    """A store with five unfinished uploads; none may be removed while they are listed."""

    def __init__(self) -> None:
        super().__init__()
        self.left = [PartialUpload(f"topics/{number}", str(number), 1, 0) for number in range(5)]

    @property
    def partial_uploads(self) -> StoreOfPartialUploads:
        return self

    async def pending(self) -> AsyncIterator[PartialUpload]:
        for upload in self.left:
            yield upload

    async def abort(self, upload: PartialUpload) -> None:
        self.left.remove(upload)


async def test_a_sweep_removes_so_many_unfinished_uploads_and_the_next_one_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bucket_sweep, "PARTIAL_MAX", 3)
    store = StoreOfPartialUploads()
    for left in (2, 0):
        assert len([stray async for stray in sweep_of(store, NO_GRACE).strays()]) > 0
        assert len(store.left) == left
