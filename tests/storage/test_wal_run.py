"""A run of WAL entries: which entries are read, how many at once, and how many large ones are in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.storage.archive_scenes import NEVER, CrashingStore, Scene
from tests.storage.record_tables import WEB

from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.object_store import ByteRange, ObjectStore, StoredObject
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.wal import wal_run
from tidelog.storage.wal.stored_entry import StoredEntry
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_codec import ParquetWalCodec
from tidelog.storage.wal.wal_run import READS_AT_ONCE, STORED_BYTES_AT_ONCE, read_run, width_after


class WatchedStore(CrashingStore):
    """Records the most reads at once, and the most bytes held before they were checked."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, NEVER, after=False)
        self.gets = 0
        self.under_way = self.at_once = 0
        self.rounds = 0
        self.held_bytes = self.held_bytes_max = 0

    async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
        self.gets += 1
        self.rounds += not self.under_way
        self.under_way += 1
        self.at_once = max(self.at_once, self.under_way)
        await asyncio.sleep(0)  # the other reads begin
        try:
            stored = await self._inner.get(key, byte_range)
        finally:
            self.under_way -= 1
        self.held_bytes += len(stored.data)
        self.held_bytes_max = max(self.held_bytes_max, self.held_bytes)
        return stored


class WatchedWal(Wal):
    """The log of a `WatchedStore`, whose bytes are no longer waiting once they were checked."""

    def __init__(self, store: WatchedStore) -> None:
        super().__init__(store, 0, ParquetWalCodec(), ShardLog(store, 0, Runtime()))
        self._watched = store

    def stored(self, seq: int, data: bytes) -> StoredEntry:
        self._watched.held_bytes = 0
        return super().stored(seq, data)


async def run_of(store: ObjectStore, start: int, end: int | None, stored_bytes: int = NEVER) -> Sequence[StoredEntry]:
    return await read_run(Scene(store).wal, start, end, stored_bytes)


async def log_of(*counts: int) -> MemoryObjectStore:
    """A log with one entry for each of `counts`, with that many records."""
    store = MemoryObjectStore()
    scene = Scene(store)
    for count in counts:
        await scene.append({WEB: count})
    return store


def numbers(entries: Sequence[StoredEntry]) -> list[int]:
    return [entry.header.seq for entry in entries]


@pytest.mark.parametrize("end", [None, 90])
async def test_many_small_entries_are_read_side_by_side_and_come_in_order(end: int | None) -> None:
    store = WatchedStore(await log_of(*[1] * 100))
    assert numbers(await run_of(store, 7, end)) == list(range(7, end or 100))
    assert store.at_once == READS_AT_ONCE


async def test_a_run_begins_as_wide_as_the_one_before_allows() -> None:
    store = WatchedStore(await log_of(*[1] * 70))
    wal = Scene(store).wal
    before = await read_run(wal, 0, 40, NEVER)
    width = width_after(before)
    assert width == READS_AT_ONCE
    store.rounds = 0
    assert numbers(await read_run(wal, 40, 70, NEVER, width=width)) == list(range(40, 70))
    assert store.rounds == 1
    assert width_after([]) == 1


async def test_a_wide_beginning_holds_no_more_of_large_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst after a quiet night, between two passes."""
    large, at_once_bytes = 50_000, 40_000
    monkeypatch.setattr(wal_run, "STORED_BYTES_AT_ONCE", at_once_bytes)
    store = await log_of(*[1] * 40, *[large] * 4)
    size = (await store.head(Scene(store).wal.key(40))).size
    watched = WatchedStore(store)
    wal = WatchedWal(watched)
    entries = await read_run(wal, 40, 44, NEVER, width=width_after(await read_run(wal, 0, 40, NEVER)))
    assert [entry.records.num_rows for entry in entries] == [large] * 4
    assert width_after(entries) == 1
    assert watched.held_bytes_max <= at_once_bytes + size


async def test_one_read_tells_that_there_is_nothing() -> None:
    store = WatchedStore(await log_of(1))
    assert await run_of(store, 1, None) == []
    assert store.gets == 1
    assert await run_of(store, 1, 1) == []
    assert store.gets == 1


async def test_a_run_ends_before_an_entry_that_is_missing() -> None:
    store = await log_of(*[1] * 20)
    await Scene(store).wal.log.delete(11)
    assert numbers(await run_of(store, 0, 20)) == list(range(11))


@pytest.mark.parametrize(("stored_bytes", "expected"), [(1, 1), (NEVER, 50)])
async def test_a_run_ends_once_it_holds_enough(stored_bytes: int, expected: int) -> None:
    assert len(await run_of(await log_of(*[3] * 50), 0, 50, stored_bytes)) == expected


async def test_large_entries_after_small_ones_are_held_one_by_one() -> None:
    """A burst after a quiet night: the parallelism for tiny entries must not apply to large ones."""
    large = 60_000
    store = await log_of(*[1] * 70, *[large] * 6)
    sizes = [(await store.head(Scene(store).wal.key(seq))).size for seq in range(70, 76)]
    watched = WatchedStore(store)
    entries = await read_run(WatchedWal(watched), 0, 76, NEVER)
    assert numbers(entries) == list(range(76))
    assert [entry.records.num_rows for entry in entries[70:]] == [large] * 6
    assert max(sizes) > STORED_BYTES_AT_ONCE // READS_AT_ONCE, "an entry that fits its share tests nothing"
    assert watched.held_bytes_max <= STORED_BYTES_AT_ONCE + max(sizes)
