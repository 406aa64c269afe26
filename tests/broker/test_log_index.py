"""The index of a shard's log: a broker keeps it, and opens the log with it."""

from __future__ import annotations

import asyncio

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker, until, wal_of
from tests.broker.drafts import numbered, offsets_of
from tests.storage.scripted_store import ScriptedObjectStore

from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.shard.log_opening import HOLES_MAX, LogOpening
from tidelog.storage.errors import Corrupt, Denied, RecordsLost
from tidelog.storage.layout import index_prefix
from tidelog.storage.object_store import Body, ObjectStore, list_all
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.wal.wal_index import INDEX_EVERY, WalIndex

ALL = FetchLimits(1_000_000, 1 << 30)
TO_ZERO = ProduceOptions(partition=0)
ENTRIES = 3 * INDEX_EVERY + 5


async def written_log(store: ObjectStore) -> None:
    """Write a log of `ENTRIES` records in as many entries, with its index."""
    async with running_broker(store, shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        for number in range(ENTRIES):
            await broker.produce(ANYBODY, "t", numbered(number, 1), TO_ZERO)
        (leader,) = broker.status().shards
        assert leader.wal_next == ENTRIES + 1
        await index_reaches(store, 3 * INDEX_EVERY)


async def last_indexed(store: ObjectStore) -> int:
    return max((entry.header.seq for entry in await WalIndex(store, 0).read(0)), default=-1)


async def index_reaches(store: ObjectStore, end: int) -> None:
    async with asyncio.timeout(60):
        while (await last_indexed(store)) < end - 1:  # noqa: ASYNC110  # the bucket sends no signal
            await asyncio.sleep(0.001)


async def test_a_leader_opens_a_long_log_with_few_requests() -> None:
    store = MemoryObjectStore()
    await written_log(store)
    scripted = ScriptedObjectStore(store)
    async with running_broker(scripted, shards=1) as broker:
        opening = scripted.taken_requests()
        assert offsets_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL)) == list(range(ENTRIES))
        assert (await broker.produce(ANYBODY, "t", numbered(ENTRIES, 1), TO_ZERO))[0].base_offset == ENTRIES
    headers = [request for request in opening if request.startswith("get wal/0000/0")]
    # The last index object, the entries after it, the START and the search for the tail:
    assert len(headers) <= 9, opening
    assert len(opening) <= 24


@pytest.mark.parametrize("harm", ["missing", "damaged"])
async def test_without_its_index_a_log_opens_all_the_same(harm: str) -> None:
    store = MemoryObjectStore()
    await written_log(store)
    async for info in list_all(store, index_prefix(0)):
        if harm == "missing":
            await store.delete(info.key)
        else:
            await store.put(info.key, b"PAR1 no more PAR1")
    async with running_broker(store, shards=1) as broker:
        assert offsets_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL)) == list(range(ENTRIES))


async def test_the_next_leader_continues_with_the_block() -> None:
    store = MemoryObjectStore()
    await written_log(store)
    async with running_broker(store, shards=1) as broker:
        for number in range(INDEX_EVERY):
            await broker.produce(ANYBODY, "t", numbered(number, 1), TO_ZERO)
        await index_reaches(store, 4 * INDEX_EVERY)


async def test_an_index_that_cannot_be_written_holds_up_nobody_and_is_made_up_for() -> None:
    inner = MemoryObjectStore()
    store = IndexOutage(inner)
    async with running_broker(store, shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        for number in range(INDEX_EVERY):
            await broker.produce(ANYBODY, "t", numbered(number, 1), TO_ZERO)
        await until(lambda: store.refused > 0)
        assert offsets_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL)) == list(range(INDEX_EVERY))
        store.over = True
        for number in range(INDEX_EVERY):
            await broker.produce(ANYBODY, "t", numbered(number, 1), TO_ZERO)
        await index_reaches(inner, 2 * INDEX_EVERY)


class IndexOutage(ScriptedObjectStore):
    """A bucket that denies every write of an index until it is `over`."""

    refused = 0
    over = False

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        if key.startswith(index_prefix(0)) and not self.over:
            self.refused += 1
            raise Denied("not this key")
        return await super().put(key, data, if_version=if_version)


@pytest.mark.parametrize("deleted", [1, INDEX_EVERY])
async def test_an_index_of_entries_that_were_deleted_is_let_go(deleted: int, caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryObjectStore()
    await written_log(store)
    wal = wal_of(store)
    end = await last_indexed(store) + 1
    for seq in range(end - deleted, ENTRIES + 1):
        await store.delete(wal.key(seq))
    kept = end - deleted - 1  # the first entry is the START
    for again in range(2):
        async with running_broker(store, shards=1) as broker:
            assert offsets_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL)) == list(range(kept + again))
            (answer,) = await broker.produce(ANYBODY, "t", numbered(again, 1), TO_ZERO)
            assert answer.base_offset == kept + again
    assert "is not in the log" in caplog.text


async def test_a_log_that_lost_an_entry_is_opened_without_it(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryObjectStore()
    await written_log(store)
    wal = wal_of(store)
    await store.delete(wal.key(ENTRIES - 1))
    async for info in list_all(store, index_prefix(0)):
        await store.delete(info.key)
    log = await LogOpening(wal, WalIndex(store, 0)).read(ENTRIES + 1)
    assert log.holes == [ENTRIES - 1]
    assert len(log.entries) == ENTRIES
    assert wal.key(ENTRIES - 1) in caplog.text


async def test_a_log_that_lost_too_many_entries_is_not_opened() -> None:
    store = MemoryObjectStore()
    with pytest.raises(Corrupt, match="is missing"):
        await LogOpening(wal_of(store), WalIndex(store, 0)).read(HOLES_MAX + 1)


@pytest.mark.parametrize("back", [0, 5])
async def test_the_contents_of_a_lost_entry_are_known_from_the_index(back: int) -> None:
    store = MemoryObjectStore()
    await written_log(store)
    lost = await last_indexed(store) - back
    await store.delete(wal_of(store).key(lost))
    async with running_broker(store, shards=1) as broker:
        offset = lost - 1  # the first entry is the START
        with pytest.raises(RecordsLost) as caught:
            await broker.fetch(ANYBODY, "t", 0, offset, ALL)
        assert (caught.value.first_offset, caught.value.next_offset) == (offset, offset + 1)
        assert offsets_of(await broker.fetch(ANYBODY, "t", 0, offset + 1, ALL)) == list(range(offset + 1, ENTRIES))
