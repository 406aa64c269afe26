"""Merging: damaged inputs, inputs that leave meanwhile, cancellation, and a full disk."""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path

import pytest
from tests.storage.archive_scenes import keys
from tests.storage.record_tables import record_table
from tests.storage.upkeep.merge_scenes import (
    add,
    encoded,
    events,
    filled,
    is_empty,
    manifest_of,
    merge,
    moved,
    segments_of,
    stored,
)
from tests.storage.upkeep.watched_stores import Expiring, Stalling

from tidelog.storage.errors import Conflict, Corrupt, Unavailable
from tidelog.storage.layout import shard_segment_id
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.upkeep.spill_file import SpillFile

# ---- damage


async def damaged(kind: str, store: MemoryObjectStore) -> None:
    """Break the second of four segments."""
    segment = (await segments_of(store))[1]
    body = bytearray((await store.get(segment.key)).data)
    if kind == "missing":
        await store.delete(segment.key)
    elif kind == "flipped":
        body[len(body) // 3] ^= 1
        await store.put(segment.key, bytes(body))
    elif kind == "truncated":
        await store.put(segment.key, bytes(body[:-7]))
    else:
        forged = stored({0: record_table([3], [(b"k0", b"3 on 0", None)])})
        made = encoded(forged, shard_segment_id(segment.key), segment.run)
        assert (made.segment.key, made.segment.size_bytes) == (segment.key, segment.size_bytes)
        await store.put(segment.key, made.body)


@pytest.mark.parametrize("kind", ["missing", "flipped", "truncated", "swapped"])
async def test_a_damaged_input_is_corrupt_and_nothing_is_changed(kind: str, tmp_path: Path) -> None:
    store = MemoryObjectStore()
    await filled(store)
    before = await manifest_of(store)
    await damaged(kind, store)
    there = await keys(store, "topics/")
    with pytest.raises(Corrupt):
        await merge(store, tmp_path)
    assert await manifest_of(store) == before
    assert await keys(store, "topics/") == there
    assert is_empty(tmp_path)


async def test_an_input_that_left_meanwhile_is_a_conflict_and_not_corrupt(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    await filled(store)
    with pytest.raises(Conflict, match="left the manifest"):
        await merge(Expiring(store), tmp_path)
    assert len(await segments_of(store)) == 3


# ---- a merge that ends early


def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The errors of finalizers from now on."""
    seen: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: seen.append(repr(unraisable.exc_value)))
    return seen


async def test_a_cancelled_merge_leaves_no_writer_that_writes_to_a_closed_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is cancelled at each of its requests: before the first row group is written, and after it."""
    store = MemoryObjectStore()
    for first in (0, 6_000):
        await add(store, {at: moved(events(6_000), first) for at in range(4)}, split=lambda at: at)
    before, seen = await manifest_of(store), unraisable(monkeypatch)
    for request in range(1, 9):
        stalling = Stalling(store, request)
        task = asyncio.create_task(merge(stalling, tmp_path))
        await stalling.reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task, stalling
        gc.collect()
    assert (seen, await manifest_of(store), is_empty(tmp_path)) == ([], before, True)


async def test_a_full_disk_leaves_no_writer_that_writes_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryObjectStore()
    for first in (0, 6_000):
        await add(store, {at: moved(events(6_000), first) for at in range(2)})
    seen, written = unraisable(monkeypatch), SpillFile.write

    def full(file: SpillFile, data: bytes | memoryview) -> int:
        if file.tell() > 100_000 and not file.closed:
            raise Unavailable("no space")
        return written(file, data)

    monkeypatch.setattr(SpillFile, "write", full)
    with pytest.raises(Unavailable, match="no space"):
        await merge(store, tmp_path)
    gc.collect()
    assert seen == []
