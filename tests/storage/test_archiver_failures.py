"""One partition of a pass fails while others are in progress: their work counts, and nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.storage.archive_scenes import (
    NEVER,
    PLACES,
    CrashingStore,
    archiver_of,
    check_logs,
    keys,
    manifest_of,
    small_scene,
)
from tests.storage.record_tables import SHOP, WEB, WEB_1

from tidelog.storage.errors import Unavailable
from tidelog.storage.in_flight import each_of
from tidelog.storage.object_store import Body, ObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore


class FailingUploads(CrashingStore):
    """While `failing`, an upload of `SHOP` fails after the uploads of the others, which take longer, have begun."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, NEVER, after=False)
        self.failing = True
        self._others_are_under_way = asyncio.Event()
        self._failed = asyncio.Event()
        self._others = 0

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        if self.failing and "/partition=" in key:
            if SHOP.topic_id in key:
                await self._others_are_under_way.wait()
                self._failed.set()
                raise Unavailable("no room")
            self._others += 1
            if self._others == len(PLACES) - 1:
                self._others_are_under_way.set()
            await self._failed.wait()
            await asyncio.sleep(0)  # the failure arrives first
        return await super().put(key, data, if_version=if_version)


async def test_where_one_partition_fails_those_under_way_are_finished_and_the_next_pass_continues() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    failing = FailingUploads(store)
    archiver = archiver_of(scene, failing)
    for _ in range(2):
        with pytest.raises(Unavailable, match="no room"):
            await archiver.run_once()
        assert (await scene.wal.floor()).number == 0
        await check_logs(scene, store)
    assert [(await manifest_of(store, place)).version for place in PLACES] == [0, 0, -1]
    failing.failing = False
    report = await archiver.run_once()
    assert report is not None
    assert [manifest.topic_partition for manifest in report.manifests] == [SHOP]
    assert report.floor == scene.next_seq
    segments = [key for key in await keys(store, "topics/") if "/partition=" in key]
    assert len(segments) == len(PLACES), "no orphans"
    await check_logs(scene, store)


async def test_the_work_of_a_failed_pass_is_reported() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    archiver = archiver_of(scene, FailingUploads(store))
    with pytest.raises(Unavailable):
        await archiver.run_once()
    assert [manifest.topic_partition for manifest in archiver.made] == [WEB, WEB_1]
    assert await archiver.run_once(up_to=0) is None
    assert archiver.made == ()


# ---- each_of


class Works:
    """Work on numbers: waits until a number's turn ends, and fails for some numbers."""

    def __init__(self, failing: Sequence[int] = ()) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.may_end = asyncio.Event()
        self._failing = failing

    async def __call__(self, number: int) -> None:
        self.begun.append(number)
        if number in self._failing:
            raise Unavailable(f"{number} fails")
        await self.may_end.wait()
        self.ended.append(number)


async def turns(count: int) -> None:
    """Let other tasks run."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_so_many_are_under_way_at_once_and_all_are_done() -> None:
    works = Works()
    all_of_it = asyncio.create_task(each_of(range(10), works, at_once=3))
    await turns(5)
    assert works.begun == [0, 1, 2]
    works.may_end.set()
    await all_of_it
    assert sorted(works.ended) == list(range(10))


async def test_after_an_error_those_under_way_end_and_no_others_begin() -> None:
    works = Works(failing=[1])
    all_of_it = asyncio.create_task(each_of(range(10), works, at_once=3))
    await turns(5)
    assert not all_of_it.done()
    works.may_end.set()
    with pytest.raises(Unavailable, match="1 fails"):
        await all_of_it
    assert works.begun == [0, 1, 2]
    assert works.ended == [0, 2]


async def test_of_two_errors_one_is_raised() -> None:
    with pytest.raises(Unavailable, match="fails"):
        await each_of(range(10), Works(failing=[0, 1]), at_once=2)


async def test_nothing_to_do_is_done() -> None:
    await each_of([], Works(), at_once=3)


async def test_with_the_caller_all_is_cancelled() -> None:
    works = Works()
    all_of_it = asyncio.create_task(each_of(range(10), works, at_once=3))
    await turns(5)
    all_of_it.cancel()
    with pytest.raises(asyncio.CancelledError):
        await all_of_it
    works.may_end.set()
    await turns(5)
    assert (works.begun, works.ended) == ([0, 1, 2], [])
