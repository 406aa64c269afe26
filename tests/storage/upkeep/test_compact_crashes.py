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
from tests.storage.upkeep.compaction_scenes import GRACE_S, RULES, Topic, Write, whole_pass
from tests.storage.upkeep.merge_scenes import PLACE

from tidelog.storage.errors import Conflict, Unavailable
from tidelog.storage.object_store import Body, ObjectStore, list_all
from tidelog.storage.stores.memory import MemoryObjectStore

DAY_S = 86_400
SMALL_BYTES = 800
"""So little memory that keys go to the disk."""
MANY = replace(RULES, segment_bytes=1)
"""Every remaining record becomes a segment, and each segment that loses records is rewritten separately."""
LEFT = [[4, 8, 10, 11, 12], [3, 4]]
"""The remaining offsets of `scene`, by partition."""


def puts(text: str) -> list[Write]:
    return [(key.lower().encode(), None if key.isupper() else f"{key}{at}".encode()) for at, key in enumerate(text)]


async def scene(folder: Path, store: ObjectStore | None = None) -> Topic:
    """A clean part with a tombstone that may be removed, and a dirty part of several segments."""
    topic = Topic(folder / "spill", store or MemoryObjectStore())
    await topic.append({0: puts("aA"), 1: puts("aA")})
    await topic.append(puts("bc"))
    assert await topic.compact()
    topic.clock.now_s += 2 * DAY_S
    await topic.append({0: puts("bde"), 1: puts("fe")})
    await topic.append(puts("Ef"))
    await topic.append({0: puts("de"), 1: puts("F")})
    await topic.append(puts("cD"))
    return topic


async def compact(topic: Topic, store: ObjectStore, seed: int = 0) -> None:
    await whole_pass(topic.task(store, seed=seed, memory_bytes=SMALL_BYTES), topic.log(store), MANY)


async def finish(topic: Topic) -> None:
    """Let a new worker do the remaining work."""
    await compact(topic, topic.store, seed=2)
    await topic.check()
    assert all(state.clean_end == state.cold_end for state in (await topic.state()).all_partitions.values())
    assert topic.task().due_at_ms(await topic.seen(), RULES, topic.clock.now_ms()) is None


async def left(topic: Topic) -> list[list[int]]:
    return [await topic.offsets(number) for number in (0, 1)]


async def operations_of_a_pass(folder: Path) -> int:
    topic = await scene(folder)
    counting = CrashingStore(topic.store, NEVER, after=False)
    await compact(topic, counting)
    assert await left(topic) == LEFT
    return counting.calls


async def test_a_crash_between_any_two_requests_leaves_a_right_log(tmp_path: Path) -> None:
    """Each request of a pass is once the last one of a process, which takes effect or does not. The state after it is
    correct, and a new process reaches the same end as one that never crashed."""
    operations = await operations_of_a_pass(tmp_path)
    assert operations > 20
    for survived in range(operations):
        for after in (False, True):
            topic = await scene(tmp_path)
            with pytest.raises(Crash):
                await compact(topic, CrashingStore(topic.store, survived, after=after))
            await topic.check()
            await finish(topic)
            assert await left(topic) == LEFT
    assert list((tmp_path / "spill").iterdir()) == []


async def test_an_answer_lost_at_any_request_is_made_good_by_running_again(tmp_path: Path) -> None:
    for survived in range(await operations_of_a_pass(tmp_path)):
        topic = await scene(tmp_path)
        with pytest.raises(Unavailable):
            await compact(topic, lost_answer(topic.store, survived))
        await topic.check()
        await finish(topic)
        assert await left(topic) == LEFT


async def test_two_compactors_at_once_do_not_harm_each_other(tmp_path: Path) -> None:
    """The second compactor makes a whole pass between any two requests of the first, which then gives up or continues
    correctly."""
    in_vain = 0
    operations = await operations_of_a_pass(tmp_path)
    for pause in range(operations):
        topic = await scene(tmp_path)
        gated = GatedStore(topic.store, pause)
        first = asyncio.create_task(compact(topic, gated))
        await gated.reached.wait()
        await compact(topic, topic.store, seed=1)
        await topic.append({0: puts("gb"), 1: puts("a")})
        await topic.check()
        gated.gate.set()
        try:
            await first
        except Conflict:
            in_vain += 1
        await topic.check()
        await finish(topic)
    assert operations / 2 < in_vain < operations


async def test_a_compactor_that_stalled_names_nothing_that_the_sweep_may_have_taken(tmp_path: Path) -> None:
    """The compactor is paused at any request for a grace, and all orphans are gone when it continues. (The grace is
    chosen so that an append takes less than half of it.)"""
    topic = await scene(tmp_path)
    recording = _AppendsRecorded(topic.store)
    await compact(topic, recording)
    for pause in set(range(recording.calls)) - set(recording.appends):
        topic = await scene(tmp_path)
        gated = GatedStore(topic.store, pause)
        stalled = asyncio.create_task(compact(topic, gated))
        await gated.reached.wait()
        for key in await unnamed(topic):
            await topic.store.delete(key)
        topic.clock.now_s += GRACE_S
        gated.gate.set()
        await stalled
        await topic.check()
        assert await left(topic) == LEFT


class _AppendsRecorded(CrashingStore):
    """Records which calls append a manifest."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, NEVER, after=False)
        self.appends: list[int] = []

    async def create(self, key: str, data: Body) -> str:
        self.appends.append(self.calls)
        return await super().create(key, data)


async def unnamed(topic: Topic) -> list[str]:
    """Segments that no manifest names, as a sweep finds them."""
    named = {segment.key for segment in await topic.segments()}
    named |= {garbage.key for garbage in (await topic.manifest()).garbage}
    return [info.key async for info in list_all(topic.store, f"topics/web/{PLACE.topic_id}/") if info.key not in named]


# ---- the disk


async def test_a_spill_folder_that_cannot_be_written_to_changes_nothing(tmp_path: Path) -> None:
    topic = await scene(tmp_path)
    before = await topic.manifest()
    (tmp_path / "file").write_bytes(b"")
    task = topic.task(memory_bytes=SMALL_BYTES, spill_folder=tmp_path / "file" / "spill")
    with pytest.raises(Unavailable, match="cannot write spill files under"):
        await whole_pass(task, topic.log(), MANY)
    assert await topic.manifest() == before
    await finish(topic)


async def test_a_full_disk_is_reported_and_nothing_is_lost(tmp_path: Path) -> None:
    """At any point: during the keys, or later during the segments."""
    refused = 0
    for size_bytes in range(0, 6_000, 250):
        topic = await scene(tmp_path)
        with disk_of(size_bytes):
            try:
                await compact(topic, topic.store)
            except Unavailable as error:
                refused += "File too large" in str(error)
        await topic.check()
        await finish(topic)
        assert await left(topic) == LEFT
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
