"""A merger may crash, stall or run twice at any of its requests, and no reader sees a difference."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.storage.archive_scenes import NEVER, Crash, CrashingStore, GatedStore, keys, lost_answer
from tests.storage.upkeep.merge_scenes import (
    add,
    filled,
    is_empty,
    manifest_of,
    merge,
    records_at,
    records_of,
    segments_of,
)

from tidelog.storage.errors import Conflict, Unavailable
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.upkeep.topic_runs import FINAL_LEVEL


async def operations_of_a_merge(folder: Path) -> int:
    """The number of requests: LIST and GET of the manifest, the inputs, the upload, the create."""
    store = MemoryObjectStore()
    await filled(store)
    counting = CrashingStore(store, NEVER, after=False)
    assert await merge(counting, folder)
    return counting.calls


ENDS = {0: 6, 1: 6, 2: 5}
"""What `filled` writes."""


async def check(store: ObjectStore, ends: dict[int, int] = ENDS) -> None:
    """Check that each partition holds all its records, once and in order, and that each segment is as its manifest
    says."""
    assert await records_of(store) == {at: records_at(at, range(end)) for at, end in ends.items()}


async def grow(store: ObjectStore) -> dict[int, int]:
    """The archiver adds a run; the ends of the partitions after it."""
    await add(store, {0: records_at(0, range(6, 9)), 5: records_at(5, range(2))})
    return {**ENDS, 0: 9, 5: 2}


async def test_a_crash_between_any_two_requests_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Each request of a merge is once the last one of a process, which takes effect or does not; then a new process
    continues. At every moment the manifest describes the log (inv. 5)."""
    operations = await operations_of_a_merge(tmp_path)
    assert operations >= 7
    for survived in range(operations):
        for after in (False, True):
            store = MemoryObjectStore()
            await filled(store)
            with pytest.raises(Crash):
                await merge(CrashingStore(store, survived, after=after), tmp_path)
            await check(store)
            ends = await grow(store)
            await check(store, ends)
            await merge(store, tmp_path, seed=1)
            await check(store, ends)
            await _expect_nothing_but_orphans_and_garbage(store)
    assert is_empty(tmp_path)


async def _expect_nothing_but_orphans_and_garbage(store: ObjectStore) -> None:
    """At most one orphan: the upload that got no manifest. Everything else is named, as a segment or as garbage."""
    named = {segment.key for segment in await segments_of(store)}
    named |= {garbage.key for garbage in (await manifest_of(store)).garbage}
    there = set(await keys(store, "topics/"))
    assert named <= there
    assert len(there - named) <= 1


async def test_an_answer_lost_at_any_request_is_made_good_by_running_again(tmp_path: Path) -> None:
    for survived in range(await operations_of_a_merge(tmp_path)):
        store = MemoryObjectStore()
        await filled(store)
        lossy = lost_answer(store, survived)
        for attempt in range(2):
            try:
                await merge(lossy, tmp_path, seed=attempt)
            except Unavailable:
                await check(store)
        await check(store)
        (segment,) = await segments_of(store)
        assert segment.level == FINAL_LEVEL


async def test_two_mergers_of_a_topic_do_not_harm_each_other(tmp_path: Path) -> None:
    """The second merger runs a whole merge between any two requests of the first, and the archiver adds a segment."""
    conflicts = 0
    operations = await operations_of_a_merge(tmp_path)
    for pause in range(operations):
        store = MemoryObjectStore()
        await filled(store)
        gated = GatedStore(store, pause)
        first = asyncio.create_task(merge(gated, tmp_path))
        await gated.reached.wait()
        await merge(store, tmp_path, seed=1)
        ends = await grow(store)
        await check(store, ends)
        gated.gate.set()
        try:
            await first
        except Conflict:
            conflicts += 1
        await check(store, ends)
        await merge(store, tmp_path, seed=2)
        await check(store, ends)
        await _expect_nothing_but_orphans_and_garbage(store)
    assert conflicts >= operations // 2


async def test_a_merge_that_is_cancelled_at_any_request_leaves_no_file(tmp_path: Path) -> None:
    for pause in range(await operations_of_a_merge(tmp_path)):
        store = MemoryObjectStore()
        await filled(store)
        gated = GatedStore(store, pause)
        stopping = asyncio.create_task(merge(gated, tmp_path))
        await gated.reached.wait()
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        await check(store)
        assert is_empty(tmp_path)
