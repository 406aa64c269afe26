"""Claim, commit, fence and truncate with real Parquet entries, on a local directory and on MinIO."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.components.s3_endpoint import S3Bucket
from tests.simulation.batches import Batch, Placed
from tests.simulation.parquet_rows import parquet_rows

from tidelog.storage.errors import Fenced
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.storage.stores.s3 import S3ObjectStore
from tidelog.storage.wal.floor import Floor
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_codec import ParquetWalCodec
from tidelog.storage.wal.wal_entry import EntryKind, PreparedEntry
from tidelog.storage.wal.wal_writer import WalWriter

SHARD = 0
RIVALS = 8


class LogStory:
    """The same scenario on each store."""

    async def test_a_log_is_claimed_written_taken_over_truncated_and_read(self, store: ObjectStore) -> None:
        wal, old, new = a_log(store), a_writer(store, "old"), a_writer(store, "new")
        assert await old.claim() == 1
        first = an_entry(wal, old, 0)
        second = an_entry(wal, old, 1, after=first)
        await old.commit(first)
        await old.commit(second)
        assert await new.claim() == 2
        with pytest.raises(Fenced):
            await old.commit(an_entry(wal, old, 2))
        await new.commit(an_entry(wal, new, 2))
        moved = ManifestChange(ChangeKind.ARCHIVE, floor=Floor(2, 1))
        await ShardLog(store, SHARD, Runtime()).change([], lambda _: moved)
        assert await wal.delete_below(2) == 2
        entries = [await wal.read(info.number) async for info in wal.entries((await wal.floor()).number)]
        assert [entry.header.epoch for entry in entries] == [1, 2, 2]
        assert [entry.header.kind for entry in entries] == [EntryKind.RECORDS, EntryKind.START, EntryKind.RECORDS]
        assert [entry.records["offset"].to_pylist() for entry in entries] == [[1], [], [2]]
        assert await a_writer(store, "third").claim() == 3

    async def test_every_rival_that_claims_at_once_gets_an_epoch_of_its_own(self, store: ObjectStore) -> None:
        writers = [a_writer(store, f"rival-{n}") for n in range(RIVALS)]
        epochs = await asyncio.gather(*(writer.claim() for writer in writers))
        assert sorted(epochs) == list(range(1, RIVALS + 1))
        wal = a_log(store)
        headers = [await wal.header(seq) for seq in range(RIVALS)]
        assert [header.epoch for header in headers] == list(range(1, RIVALS + 1))

    async def test_of_rival_leaders_only_the_last_commits(self, store: ObjectStore) -> None:
        wal, writers = a_log(store), [a_writer(store, f"rival-{n}") for n in range(RIVALS)]
        for writer in writers:
            await writer.claim()
        commits = (writer.commit(an_entry(wal, writer, 0)) for writer in writers)
        results = await asyncio.gather(*commits, return_exceptions=True)
        assert [type(result) for result in results] == [Fenced] * (RIVALS - 1) + [type(None)]


class TestOnALocalDirectory(LogStory):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[ObjectStore]:
        store = LocalObjectStore(tmp_path)
        yield store
        await store.aclose()


class TestOnMinIO(LogStory):
    @pytest.fixture
    async def store(self, minio_bucket: S3Bucket) -> AsyncIterator[ObjectStore]:
        store = S3ObjectStore(minio_bucket.name, "log", minio_bucket.endpoint.settings())
        yield store
        await store.aclose()


def a_log(store: ObjectStore) -> Wal:
    return Wal(store, SHARD, ParquetWalCodec(), ShardLog(store, SHARD, Runtime()))


def a_writer(store: ObjectStore, name: str) -> WalWriter:
    return WalWriter(a_log(store), Runtime(), name)


def an_entry(wal: Wal, writer: WalWriter, offset: int, *, after: PreparedEntry | None = None) -> PreparedEntry:
    """One record at `offset`."""
    placed = Placed(Batch("p", offset, 0, 1), offset)
    header = writer.next_header(
        spans=(placed.span(),), producers=(placed.mark(),), after=after.header if after else None
    )
    return PreparedEntry(header, wal.codec.encode(header, parquet_rows(placed)))
