"""delete-records through a broker: deleted records are out of range at once; the others are read as before."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker
from tests.broker.drafts import draft, numbered, offsets_of
from tests.broker.logs import partition_log

from tidelog.services.broker.api.fetch import Anchor, FetchLimits, Position
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.errors import Invalid, NotFound, OutOfRange
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore

ALL = FetchLimits(1_000, 1 << 20)


async def with_records(broker: LocalBroker, count: int = 10) -> None:
    await broker.create_topic(ANYBODY, "t", 1, {})
    await broker.produce(ANYBODY, "t", numbered(0, count), ProduceOptions())


async def test_records_of_segments_and_of_the_wal_are_deleted(store: ObjectStore) -> None:
    async with running_broker(store, shards=1) as broker:
        await with_records(broker)
        await broker.archive_now()
        await broker.produce(ANYBODY, "t", numbered(10, 10), ProduceOptions())
        assert await broker.delete_records(ANYBODY, "t", 0, 4) == 4
        assert (await partition_log(broker, "t", 0)).cold_end == 10
        assert offsets_of(await broker.fetch(ANYBODY, "t", 0, 4, ALL)) == list(range(4, 20))
        assert await broker.delete_records(ANYBODY, "t", 0, 13) == 13
        assert (await partition_log(broker, "t", 0)).cold_end == 20
        assert offsets_of(await broker.fetch(ANYBODY, "t", 0, 13, ALL)) == list(range(13, 20))
        with pytest.raises(OutOfRange) as refused:
            await broker.fetch(ANYBODY, "t", 0, 12, ALL)
        assert (refused.value.log_start_offset, refused.value.high_watermark) == (13, 20)
        assert await broker.resolve(ANYBODY, "t", 0, Position(Anchor.EARLIEST)) == 13


async def test_minus_one_deletes_all_that_is_committed() -> None:
    async with running_broker(MemoryObjectStore(), shards=1) as broker:
        await with_records(broker)
        assert await broker.delete_records(ANYBODY, "t", 0, -1) == 10
        assert offsets_of(await broker.fetch(ANYBODY, "t", 0, 10, ALL)) == []
        await broker.produce(ANYBODY, "t", numbered(10, 5), ProduceOptions())
        assert offsets_of(await broker.fetch(ANYBODY, "t", 0, 10, ALL)) == list(range(10, 15))


async def test_an_offset_below_the_beginning_changes_nothing() -> None:
    async with running_broker(MemoryObjectStore(), shards=1) as broker:
        await with_records(broker)
        await broker.delete_records(ANYBODY, "t", 0, 6)
        version = (await partition_log(broker, "t", 0)).manifest_version
        for offset in (0, 5, 6):
            assert await broker.delete_records(ANYBODY, "t", 0, offset) == 6
        assert (await partition_log(broker, "t", 0)).manifest_version == version


async def test_a_position_that_no_log_has_is_refused() -> None:
    async with running_broker(MemoryObjectStore(), shards=1) as broker:
        await with_records(broker)
        with pytest.raises(OutOfRange) as beyond:
            await broker.delete_records(ANYBODY, "t", 0, 11)
        assert (beyond.value.log_start_offset, beyond.value.high_watermark) == (0, 10)
        with pytest.raises(Invalid):
            await broker.delete_records(ANYBODY, "t", 0, -2)
        with pytest.raises(NotFound):
            await broker.delete_records(ANYBODY, "t", 1, 0)
        with pytest.raises(NotFound):
            await broker.delete_records(ANYBODY, "nowhere", 0, 0)
        assert offsets_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL)) == list(range(10))


async def test_an_empty_partition_has_nothing_to_delete() -> None:
    async with running_broker(MemoryObjectStore(), shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        assert await broker.delete_records(ANYBODY, "t", 0, -1) == 0
        assert await broker.delete_records(ANYBODY, "t", 0, 0) == 0


async def test_other_partitions_keep_what_they_have() -> None:
    async with running_broker(MemoryObjectStore(), shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {})
        for partition in (0, 1):
            await broker.produce(ANYBODY, "t", numbered(0, 10), ProduceOptions(partition=partition))
        assert await broker.delete_records(ANYBODY, "t", 1, 7) == 7
        assert offsets_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL)) == list(range(10))
        assert offsets_of(await broker.fetch(ANYBODY, "t", 1, 7, ALL)) == list(range(7, 10))


async def test_a_restart_begins_where_the_records_were_deleted_to(bucket: Callable[[], ObjectStore]) -> None:
    async with running_broker(bucket(), shards=1) as broker:
        await with_records(broker)
        await broker.delete_records(ANYBODY, "t", 0, 7)
    async with running_broker(bucket(), shards=1) as broker:
        assert offsets_of(await broker.fetch(ANYBODY, "t", 0, 7, ALL)) == [7, 8, 9]
        with pytest.raises(OutOfRange):
            await broker.fetch(ANYBODY, "t", 0, 6, ALL)


async def test_the_first_record_of_a_time_is_one_that_is_left() -> None:
    async with running_broker(MemoryObjectStore(), shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", draft([b"v"] * 5, timestamps=[1_000, 10, 20, 1_500, 900]), ProduceOptions())
        await broker.archive_now()
        await broker.produce(ANYBODY, "t", draft([b"v"], timestamps=[5_000]), ProduceOptions())
        assert await broker.resolve(ANYBODY, "t", 0, Position(Anchor.TIMESTAMP, 500)) == 0
        await broker.delete_records(ANYBODY, "t", 0, 1)
        assert await broker.resolve(ANYBODY, "t", 0, Position(Anchor.TIMESTAMP, 500)) == 3
        assert await broker.resolve(ANYBODY, "t", 0, Position(Anchor.TIMESTAMP, 0)) == 1
        await broker.delete_records(ANYBODY, "t", 0, 4)
        assert await broker.resolve(ANYBODY, "t", 0, Position(Anchor.TIMESTAMP, 1_000)) == 5
        assert await broker.resolve(ANYBODY, "t", 0, Position(Anchor.TIMESTAMP, 5_001)) == 6
