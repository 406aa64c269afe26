"""A compactor may crash, stall or run twice at any of its requests, and run out of disk: the log stays correct."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.storage.archive_scenes import NEVER, Crash, CrashingStore, GatedStore, lost_answer
from tests.storage.upkeep.compaction_scenes import GRACE_S, PLACE, RULES, Partition, Write, whole_pass

from tidelog.storage.errors import Conflict, Unavailable
from tidelog.storage.object_store import Body, ObjectStore, list_all
from tidelog.storage.stores.memory import MemoryObjectStore

DAY_S = 86_400
SMALL_BYTES = 800
"""So little memory that keys go to the disk."""
MANY = replace(RULES, segment_bytes=1)
"""Every remaining record becomes a segment, and each segment that loses records is rewritten separately."""
LEFT = [4, 8, 10, 11, 12]
"""The remaining offsets of `scene`."""


def puts(text: str) -> list[Write]:
    return [(key.lower().encode(), None if key.isupper() else f"{key}{at}".encode()) for at, key in enumerate(text)]


async def scene(folder: Path, store: ObjectStore | None = None) -> Partition:
    """A clean part with a tombstone that may be removed, and a dirty part of several segments."""
    partition = Partition(folder / "spill", store or MemoryObjectStore())
    await partition.append(puts("aA"))
    await partition.append(puts("bc"))
    assert await partition.compact()
    partition.clock.now_s += 2 * DAY_S
    for text in ("bde", "Ef", "de", "cD"):
        await partition.append(puts(text))
    return partition


async def compact(partition: Partition, store: ObjectStore, seed: int = 0) -> None:
    await whole_pass(partition.task(store, seed=seed, memory_bytes=SMALL_BYTES), partition.log(store), MANY)


async def finish(partition: Partition) -> None:
    """Let a new worker do the remaining work."""
    await compact(partition, partition.store, seed=1)
    await partition.check()
    manifest = await partition.manifest()
    assert manifest.clean_end == manifest.cold_end
    assert partition.task().due_at_ms(manifest, RULES, partition.clock.now_ms()) is None


async def operations_of_a_pass(folder: Path) -> int:
    partition = await scene(folder)
    counting = CrashingStore(partition.store, NEVER, after=False)
    await compact(partition, counting)
    assert await partition.offsets() == LEFT
    return counting.calls


async def test_a_crash_between_any_two_requests_leaves_a_right_log(tmp_path: Path) -> None:
    """Each request of a pass is once the last one of a process, which takes effect or does not. The state after it is
    correct, and a new process reaches the same end as one that never crashed."""
    operations = await operations_of_a_pass(tmp_path)
    assert operations > 30
    for survived in range(operations):
        for after in (False, True):
            partition = await scene(tmp_path)
            with pytest.raises(Crash):
                await compact(partition, CrashingStore(partition.store, survived, after=after))
            await partition.check()
            await finish(partition)
            assert await partition.offsets() == LEFT
    assert list((tmp_path / "spill").iterdir()) == []


async def test_an_answer_lost_at_any_request_is_made_good_by_running_again(tmp_path: Path) -> None:
    for survived in range(await operations_of_a_pass(tmp_path)):
        partition = await scene(tmp_path)
        with pytest.raises(Unavailable):
            await compact(partition, lost_answer(partition.store, survived))
        await partition.check()
        await finish(partition)
        assert await partition.offsets() == LEFT


async def test_two_compactors_at_once_do_not_harm_each_other(tmp_path: Path) -> None:
    """The second compactor makes a whole pass between any two requests of the first, which then gives up or continues
    correctly."""
    in_vain = 0
    operations = await operations_of_a_pass(tmp_path)
    for pause in range(operations):
        partition = await scene(tmp_path)
        gated = GatedStore(partition.store, pause)
        first = asyncio.create_task(compact(partition, gated))
        await gated.reached.wait()
        await compact(partition, partition.store, seed=1)
        await partition.append(puts("gb"))
        await partition.check()
        gated.gate.set()
        try:
            await first
        except Conflict:
            in_vain += 1
        await partition.check()
        await finish(partition)
    assert operations / 2 < in_vain < operations


async def test_a_compactor_that_stalled_names_nothing_that_the_sweep_may_have_taken(tmp_path: Path) -> None:
    """The compactor is paused at any request for a grace, and all orphans are gone when it continues. (The grace is
    chosen so that an append takes less than half of it.)"""
    partition = await scene(tmp_path)
    recording = _AppendsRecorded(partition.store)
    await compact(partition, recording)
    for pause in set(range(recording.calls)) - set(recording.appends):
        partition = await scene(tmp_path)
        gated = GatedStore(partition.store, pause)
        stalled = asyncio.create_task(compact(partition, gated))
        await gated.reached.wait()
        for key in await unnamed(partition):
            await partition.store.delete(key)
        partition.clock.now_s += GRACE_S
        gated.gate.set()
        await stalled
        await partition.check()
        assert await partition.offsets() == LEFT


class _AppendsRecorded(CrashingStore):
    """Records which calls append a manifest."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, NEVER, after=False)
        self.appends: list[int] = []

    async def create(self, key: str, data: Body) -> str:
        self.appends.append(self.calls)
        return await super().create(key, data)


async def unnamed(partition: Partition) -> list[str]:
    """Segments that no manifest names, as a sweep finds them."""
    manifest = await partition.manifest()
    named = {segment.key for segment in manifest.segments} | {garbage.key for garbage in manifest.garbage}
    prefix = "topics/web/" + PLACE.topic_partition.topic_id + "/partition=0/"
    return [info.key async for info in list_all(partition.store, prefix) if info.key not in named]


# ---- the disk


async def test_a_spill_folder_that_cannot_be_written_to_changes_nothing(tmp_path: Path) -> None:
    partition = await scene(tmp_path)
    before = await partition.manifest()
    (tmp_path / "file").write_bytes(b"")
    task = partition.task(memory_bytes=SMALL_BYTES, spill_folder=tmp_path / "file" / "spill")
    with pytest.raises(Unavailable, match="cannot write spill files under"):
        await whole_pass(task, partition.log(), MANY)
    assert await partition.manifest() == before
    await finish(partition)


async def test_a_full_disk_is_reported_and_nothing_is_lost(tmp_path: Path) -> None:
    """At any point: during the keys, or later during the segments."""
    refused = 0
    for size_bytes in range(0, 6_000, 250):
        partition = await scene(tmp_path)
        with disk_of(size_bytes):
            try:
                await compact(partition, partition.store)
            except Unavailable as error:
                refused += "File too large" in str(error)
        await partition.check()
        await finish(partition)
        assert await partition.offsets() == LEFT
    assert refused > 3
    assert list((tmp_path / "spill").iterdir()) == []


@contextmanager
def disk_of(size_bytes: int) -> Iterator[None]:
    """Limit the size of files of this process. (Python ignores the signal that comes with it.)"""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
