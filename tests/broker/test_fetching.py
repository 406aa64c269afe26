"""Fetches from memory, from old WAL entries, from segments, across their borders, and with waiting."""

import asyncio
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker, until, wal_of
from tests.broker.drafts import draft, numbered, offsets_of, values_of
from tests.broker.logs import partition_log

from tidelog.services.broker.api.fetch import Anchor, Fetched, FetchLimits, Position
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.errors import Corrupt, OutOfRange
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.records import RECORD_SCHEMA, WAL_SCHEMA
from tidelog.storage.stores.counting import CountingObjectStore, Kind
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb

ALL = FetchLimits(1_000_000, 1 << 30)
TO_ZERO = ProduceOptions(partition=0)
NO_CACHE = 0


async def read_on(broker: LocalBroker, limits: FetchLimits) -> list[Fetched]:
    """Fetch repeatedly from the start to the end."""
    fetches, offset = [], await broker.resolve(ANYBODY, "t", 0, Position(Anchor.EARLIEST))
    while True:
        fetched = await broker.fetch(ANYBODY, "t", 0, offset, limits)
        if fetched.next_offset == offset:
            return fetches
        fetches.append(fetched)
        offset = fetched.next_offset


@pytest.mark.parametrize("cache_bytes", [NO_CACHE, 1 << 20])
@pytest.mark.parametrize("archive_after", [(), (3,), (2, 5), (9,)])
@pytest.mark.parametrize("limits", [ALL, FetchLimits(7, 1 << 20), FetchLimits(1_000, 9)])
async def test_every_record_is_read_once_in_order_wherever_it_lies(
    store: ObjectStore, cache_bytes: int, archive_after: tuple[int, ...], limits: FetchLimits
) -> None:
    async with running_broker(store, cache_max_bytes=cache_bytes) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        for batch in range(10):
            await broker.produce(ANYBODY, "t", numbered(batch * 10, 10), TO_ZERO)
            if batch in archive_after:
                await broker.archive_now()
        fetches = await read_on(broker, limits)
        assert [offset for fetched in fetches for offset in offsets_of(fetched)] == list(range(100))
        assert [value for fetched in fetches for value in values_of(fetched)] == [b"%d" % n for n in range(100)]
        assert all(batch.schema == RECORD_SCHEMA for fetched in fetches for batch in fetched.batches)


async def test_limits_are_kept_and_one_record_always_comes(store: ObjectStore) -> None:
    async with running_broker(store) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", draft([b"x" * 10] * 10), TO_ZERO)
        assert len(offsets_of(await broker.fetch(ANYBODY, "t", 0, 0, FetchLimits(3, 1_000)))) == 3
        assert len(offsets_of(await broker.fetch(ANYBODY, "t", 0, 0, FetchLimits(100, 35)))) == 3
        assert len(offsets_of(await broker.fetch(ANYBODY, "t", 0, 0, FetchLimits(100, 1)))) == 1
        assert len(offsets_of(await broker.fetch(ANYBODY, "t", 0, 0, FetchLimits(0, 0)))) == 1


async def test_the_brokers_own_limits_bound_a_fetch() -> None:
    async with running_broker(MemoryObjectStore(), fetch_max_records=4, fetch_max_bytes=25) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", draft([b"x"] * 10), TO_ZERO)
        await broker.produce(ANYBODY, "t", draft([b"x" * 10] * 10), TO_ZERO)
        assert len(offsets_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL))) == 4
        assert len(offsets_of(await broker.fetch(ANYBODY, "t", 0, 10, ALL))) == 2


@pytest.mark.parametrize("offset", [-1, 4, 2**62])
async def test_an_offset_out_of_range_says_what_the_range_is(offset: int) -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", numbered(0, 3), TO_ZERO)
        with pytest.raises(OutOfRange) as raised:
            await broker.fetch(ANYBODY, "t", 0, offset, ALL)
        assert (raised.value.log_start_offset, raised.value.high_watermark) == (0, 3)


async def test_many_who_read_one_old_entry_cost_one_request(store: ObjectStore) -> None:
    counting = CountingObjectStore(store)
    async with running_broker(counting, cache_max_bytes=2_000_000) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", draft([b"x" * 1_000] * 900), TO_ZERO)
        # These push the first records out of the hot tail:
        await broker.produce(ANYBODY, "t", draft([b"y" * 1_000] * 900), TO_ZERO)
        before = counting.usage()
        fetches = await asyncio.gather(*(broker.fetch(ANYBODY, "t", 0, 0, FetchLimits(5, 1 << 20)) for _ in range(100)))
        assert all(values_of(fetched) == [b"x" * 1_000] * 5 for fetched in fetches)
        assert (counting.usage() - before).requests() == 1


async def test_reading_on_in_a_segment_costs_no_request_a_fetch_and_no_listing(store: ObjectStore) -> None:
    counting = CountingObjectStore(store)
    async with running_broker(counting) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", draft([b"x" * 100] * 5_000), TO_ZERO)
        await broker.archive_now()
        before = counting.usage()
        assert sum(len(offsets_of(fetched)) for fetched in await read_on(broker, FetchLimits(100, 1 << 20))) == 5_000
        spent = counting.usage() - before
        assert spent.requests(Verb.LIST) == 0
        assert spent.requests(kind=Kind.SEGMENT) <= 2


async def test_readers_of_one_cold_place_share_its_read(store: ObjectStore) -> None:
    counting = CountingObjectStore(store)
    async with running_broker(counting) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", draft([b"x" * 100] * 5_000), TO_ZERO)
        await broker.archive_now()
        before = counting.usage()
        await asyncio.gather(*(broker.fetch(ANYBODY, "t", 0, 0, FetchLimits(5, 1 << 20)) for _ in range(100)))
        assert (counting.usage() - before).requests() <= 2


async def test_hot_reads_ask_nothing_of_the_store(store: ObjectStore) -> None:
    counting = CountingObjectStore(store)
    async with running_broker(counting) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", numbered(0, 1_000), TO_ZERO)
        before = counting.usage()
        await read_on(broker, FetchLimits(10, 1 << 20))
        assert (counting.usage() - before).requests() == 0


# ---- positions


async def test_positions_resolve() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", numbered(0, 10), TO_ZERO)
        wanted = {
            Position(Anchor.EARLIEST): 0,
            Position(Anchor.LATEST): 10,
            Position(Anchor.FROM_END, 3): 7,
            Position(Anchor.FROM_END, 50): 0,
            Position(Anchor.OFFSET, 4): 4,
            Position(Anchor.OFFSET, 99): 99,
        }
        assert {position: await broker.resolve(ANYBODY, "t", 0, position) for position in wanted} == wanted


@pytest.mark.parametrize("archived", [0, 1, 2, 3])
@pytest.mark.parametrize("cache_bytes", [NO_CACHE, 1 << 20])
async def test_a_time_resolves_to_the_first_record_at_or_after_it(
    store: ObjectStore, archived: int, cache_bytes: int
) -> None:
    batches = [[100, 200, 150], [400, 300, 500], [500, 450, 600]]
    async with running_broker(store, cache_max_bytes=cache_bytes) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        for number, timestamps in enumerate(batches, 1):
            await broker.produce(ANYBODY, "t", draft([b"v"] * 3, timestamps=timestamps), TO_ZERO)
            if number == archived:
                await broker.archive_now()
        flat = [timestamp for batch in batches for timestamp in batch]
        for time_ms in (0, 100, 101, 200, 201, 399, 400, 401, 500, 501, 600, 601):
            wanted = next((offset for offset, timestamp in enumerate(flat) if timestamp >= time_ms), 9)
            assert await broker.resolve(ANYBODY, "t", 0, Position(Anchor.TIMESTAMP, time_ms)) == wanted


# ---- waiting


async def test_a_long_poll_wakes_at_the_commit(store: ObjectStore) -> None:
    async with running_broker(store) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        waiting = asyncio.create_task(broker.fetch(ANYBODY, "t", 0, 0, FetchLimits(10, 1_000, 60_000)))
        await until(lambda: broker.measurements().waiting_fetches == 1)
        await broker.produce(ANYBODY, "t", numbered(0, 2), TO_ZERO)
        assert values_of(await waiting) == [b"0", b"1"]
        assert broker.measurements().waiting_fetches == 0


async def test_a_long_poll_ends_empty_after_its_time() -> None:
    async with running_broker(MemoryObjectStore(), fetch_max_wait_ms=10) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        fetched = await broker.fetch(ANYBODY, "t", 0, 0, FetchLimits(10, 1_000, 60_000))
        assert (list(fetched.batches), fetched.next_offset) == ([], 0)


async def test_thousands_of_waiters_all_wake_and_leave_nothing_behind() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "t", 4, {})
        waiting = [
            asyncio.create_task(broker.fetch(ANYBODY, "t", number % 4, 0, FetchLimits(10, 1_000, 60_000)))
            for number in range(5_000)
        ]
        await until(lambda: broker.measurements().waiting_fetches == 5_000)
        await broker.produce(ANYBODY, "t", draft([b"v"] * 4, partitions=[0, 1, 2, 3]), ProduceOptions())
        fetches = await asyncio.gather(*waiting)
        assert all(values_of(fetched) == [b"v"] for fetched in fetches)
        assert broker.measurements().waiting_fetches == 0


async def test_a_client_that_leaves_waits_no_longer() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        waiting = asyncio.create_task(broker.fetch(ANYBODY, "t", 0, 0, FetchLimits(10, 1_000, 60_000)))
        await until(lambda: broker.measurements().waiting_fetches == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert broker.measurements().waiting_fetches == 0


# ---- one consistent picture


async def test_the_log_of_a_partition_is_whole_while_it_is_archived(store: ObjectStore) -> None:
    """Inv. 5: at every moment segments and hot tail meet without gap or overlap."""
    async with running_broker(store) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        done = False

        async def produce() -> None:
            for batch in range(40):
                await broker.produce(ANYBODY, "t", numbered(batch * 5, 5), TO_ZERO)

        async def archive() -> None:
            while not done:
                await broker.archive_now()
                await asyncio.sleep(0)

        async def look() -> int:
            looks = 0
            while not done:
                log = await partition_log(broker, "t", 0)
                ends = [log.log_start_offset, *(span.last_offset + 1 for span in log.spans)]
                assert [span.base_offset for span in log.spans] == ends[:-1]
                assert ends[-1] == log.cold_end <= log.high_watermark
                fetched = await broker.fetch(ANYBODY, "t", 0, 0, ALL)
                assert offsets_of(fetched) == list(range(fetched.next_offset))
                assert fetched.next_offset >= log.high_watermark
                looks += 1
                await asyncio.sleep(0)
            return looks

        others = [asyncio.create_task(archive()), asyncio.create_task(look())]
        await produce()
        done = True
        assert (await asyncio.gather(*others))[1] > 0


@pytest.mark.parametrize("shift", [-3, 5])
async def test_an_entry_that_holds_other_records_than_it_did_is_corrupt(shift: int) -> None:
    """Somebody replaced the entry. The reader must not wait for records that never come."""
    store = MemoryObjectStore()
    async with running_broker(store, cache_max_bytes=NO_CACHE, shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", numbered(0, 10), TO_ZERO)
        await broker.produce(ANYBODY, "t", numbered(10, 10), TO_ZERO)
        wal = wal_of(store)
        entry = await wal.read(2)
        (span,) = entry.header.spans
        header = replace(entry.header, spans=(replace(span, base_offset=span.base_offset + shift),))
        offsets = pa.chunked_array([pa.array(range(10 + shift, 20 + shift), pa.int64())])
        place = WAL_SCHEMA.get_field_index("offset")
        records = entry.records.set_column(place, WAL_SCHEMA.field("offset"), offsets)
        await store.put(wal.key(2), wal.codec.encode(header, records))
        assert offsets_of(await broker.fetch(ANYBODY, "t", 0, 0, FetchLimits(10, 1 << 20))) == list(range(10))
        with pytest.raises(Corrupt, match="does not hold offset 10"):
            await broker.fetch(ANYBODY, "t", 0, 10, ALL)
