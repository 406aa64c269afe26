"""Appends: offsets, acknowledgements, conditions; a refused request leaves nothing behind."""

import asyncio

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker, until
from tests.broker.drafts import draft, numbered, offsets_of, timestamps_of, values_of
from tests.broker.gated_store import GatedObjectStore

from tidelog.services.broker.api.fetch import Anchor as At
from tidelog.services.broker.api.fetch import FetchLimits, Position
from tidelog.services.broker.api.produce import Acks, ProduceOptions
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.errors import (
    NotFound,
    Overloaded,
    TooLarge,
    Unavailable,
)
from tidelog.storage.layout import wal_prefix
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.partitioner import partitions_of
from tidelog.storage.stores.counting import CountingObjectStore, Kind
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb

ALL = FetchLimits(1_000_000, 1 << 30)
TO_ZERO = ProduceOptions(partition=0)


async def fetched_values(broker: LocalBroker, topic: str = "t", partition: int = 0) -> list[bytes]:
    start = await broker.resolve(ANYBODY, topic, partition, Position(At.EARLIEST))
    return values_of(await broker.fetch(ANYBODY, topic, partition, start, ALL))


async def test_concurrent_producers_get_dense_offsets_in_the_order_of_the_log(store: ObjectStore) -> None:
    async with running_broker(store) as broker:
        await broker.create_topic(ANYBODY, "t", 3, {})

        async def one(producer: int) -> list[tuple[int, int, int]]:
            taken = []
            for batch in range(10):
                options = ProduceOptions(partition=(producer + batch) % 3)
                (answer,) = await broker.produce(ANYBODY, "t", numbered(producer * 1_000 + batch * 10, 5), options)
                taken.append((answer.partition, answer.base_offset or 0, producer * 1_000 + batch * 10))
            return taken

        answers = [answer for taken in await asyncio.gather(*map(one, range(8))) for answer in taken]
        for partition in range(3):
            fetched = await broker.fetch(ANYBODY, "t", partition, 0, ALL)
            assert offsets_of(fetched) == list(range(fetched.high_watermark))
            values = values_of(fetched)
            for number, base, first in answers:
                if number == partition:
                    assert values[base : base + 5] == [b"%d" % value for value in range(first, first + 5)]
        assert len(answers) == 80


async def test_requests_that_come_while_a_put_is_under_way_share_the_next_one() -> None:
    gated = GatedObjectStore(MemoryObjectStore())
    counting = CountingObjectStore(gated)
    async with running_broker(counting) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        gated.hold()
        before = counting.usage()
        first = asyncio.create_task(broker.produce(ANYBODY, "t", numbered(0, 1), TO_ZERO))
        await gated.arrived.wait()
        others = [asyncio.create_task(broker.produce(ANYBODY, "t", numbered(n, 1), TO_ZERO)) for n in range(1, 50)]
        await until(lambda: broker.measurements().buffered_bytes > 50 * 4_096)
        gated.gate.set()
        await asyncio.gather(first, *others)
        assert (counting.usage() - before).requests(Verb.CREATE, kind=Kind.WAL) == 2


async def test_a_batch_is_cut_at_its_bound_and_at_one_append_at_least() -> None:
    gated = GatedObjectStore(MemoryObjectStore())
    counting = CountingObjectStore(gated)
    async with running_broker(counting, flush_max_bytes=100_000) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        gated.hold()
        before = counting.usage()
        tasks = [asyncio.create_task(broker.produce(ANYBODY, "t", draft([b"x" * 40_000]), TO_ZERO)) for _ in range(6)]
        tasks.append(asyncio.create_task(broker.produce(ANYBODY, "t", draft([b"x" * 300_000]), TO_ZERO)))
        await until(lambda: broker.measurements().buffered_bytes > 540_000)
        gated.gate.set()
        await asyncio.gather(*tasks)
        # the first is written alone or with later ones; the rest two by two; the large one alone
        assert (counting.usage() - before).requests(Verb.CREATE, kind=Kind.WAL) in (4, 5)


async def test_nothing_uncommitted_is_readable() -> None:
    gated = GatedObjectStore(MemoryObjectStore())
    async with running_broker(gated) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        gated.hold()
        (answer,) = await broker.produce(ANYBODY, "t", numbered(0, 3), ProduceOptions(Acks.LEADER, partition=0))
        await gated.arrived.wait()
        assert answer.base_offset == 0
        assert (await broker.fetch(ANYBODY, "t", 0, 0, ALL)).high_watermark == 0
        gated.gate.set()
        assert values_of(await broker.fetch(ANYBODY, "t", 0, 0, FetchLimits(10, 1_000, 5_000))) == [b"0", b"1", b"2"]


async def test_acks_none_answers_at_once_without_an_offset() -> None:
    gated = GatedObjectStore(MemoryObjectStore())
    async with running_broker(gated) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        gated.hold()
        (answer,) = await broker.produce(ANYBODY, "t", numbered(0, 3), ProduceOptions(Acks.NONE, partition=0))
        assert (answer.base_offset, answer.count) == (None, 3)
        gated.gate.set()


async def test_keys_are_spread_as_kafka_spreads_them(store: ObjectStore) -> None:
    keys = [b"key-%d" % number for number in range(200)]
    async with running_broker(store) as broker:
        await broker.create_topic(ANYBODY, "t", 5, {})
        answers = await broker.produce(ANYBODY, "t", draft(keys, keys=keys), ProduceOptions())
        wanted = partitions_of(draft(keys, keys=keys).records.column("key"), 5).tolist()
        assert [answer.partition for answer in answers] == sorted(set(wanted))
        for partition in range(5):
            expected = [key for key, home in zip(keys, wanted, strict=True) if home == partition]
            assert await fetched_values(broker, partition=partition) == expected


async def test_requests_without_keys_take_partitions_in_turn() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "t", 3, {})
        answers = [await broker.produce(ANYBODY, "t", numbered(0, 2), ProduceOptions()) for _ in range(6)]
        assert [answer.partition for (answer,) in answers] == [0, 1, 2, 0, 1, 2]


async def test_a_topic_is_created_by_the_first_produce_unless_that_is_off() -> None:
    async with running_broker(MemoryObjectStore(), num_partitions=2) as broker:
        await asyncio.gather(*(broker.produce(ANYBODY, "new", numbered(0, 1), ProduceOptions()) for _ in range(5)))
        assert broker.topic(ANYBODY, "new").partition_count == 2
        with pytest.raises(NotFound):
            await broker.produce(ANYBODY, "other", numbered(0, 1), ProduceOptions(auto_create=False))
        with pytest.raises(NotFound):
            await broker.fetch(ANYBODY, "other", 0, 0, ALL)
    async with running_broker(MemoryObjectStore(), auto_create_topics_enable=False) as broker:
        with pytest.raises(NotFound):
            await broker.produce(ANYBODY, "new", numbered(0, 1), ProduceOptions())
        assert broker.topics(ANYBODY) == ()


# ---- refusals


async def test_a_full_buffer_refuses_and_takes_nothing_of_any_partition() -> None:
    gated = GatedObjectStore(MemoryObjectStore())
    async with running_broker(gated, buffer_max_bytes=300_000) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {})
        gated.hold()
        held = [
            asyncio.create_task(broker.produce(ANYBODY, "t", draft([b"x" * 100_000]), ProduceOptions(partition=number)))
            for number in range(2)
        ]
        await until(lambda: broker.measurements().buffered_bytes > 200_000)
        before = broker.measurements().buffered_bytes
        with pytest.raises(Overloaded) as raised:
            await broker.produce(ANYBODY, "t", draft([b"y" * 60_000] * 2, partitions=[0, 1]), ProduceOptions())
        assert raised.value.retry_after_s > 0
        assert broker.measurements().buffered_bytes == before
        gated.gate.set()
        await asyncio.gather(*held)
        assert broker.measurements().buffered_bytes == 0
        answers = await broker.produce(ANYBODY, "t", draft([b"y", b"z"], partitions=[0, 1]), ProduceOptions())
        assert [answer.base_offset for answer in answers] == [1, 1]


async def test_a_request_that_never_fits_is_too_large() -> None:
    async with running_broker(MemoryObjectStore(), buffer_max_bytes=50_000) as broker:
        with pytest.raises(TooLarge) as raised:
            await broker.produce(ANYBODY, "t", draft([b"x" * 60_000]), ProduceOptions())
        assert raised.value.limit_name == "buffer.max.bytes"


async def test_a_commit_that_takes_too_long_says_that_the_outcome_is_unknown() -> None:
    gated = GatedObjectStore(MemoryObjectStore())
    async with running_broker(gated, commit_timeout_ms=20) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        gated.hold()
        with pytest.raises(Unavailable, match="unknown"):
            await broker.produce(ANYBODY, "t", numbered(0, 1), TO_ZERO)
        gated.gate.set()
        assert values_of(await broker.fetch(ANYBODY, "t", 0, 0, FetchLimits(1, 1_000, 5_000))) == [b"0"]


async def test_an_error_tells_which_partitions_are_committed() -> None:
    gated = GatedObjectStore(MemoryObjectStore())
    async with running_broker(gated, commit_timeout_ms=1_000) as broker:
        topic = await broker.create_topic(ANYBODY, "t", 2, {})
        gated.hold(wal_prefix(topic.shards[1]))
        with pytest.raises(Unavailable) as raised:
            await broker.produce(ANYBODY, "t", draft([b"a", b"b"], partitions=[0, 1]), ProduceOptions())
        assert raised.value.committed == (0,)
        gated.gate.set()


async def test_a_record_over_max_message_bytes_is_refused_whole() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {"max.message.bytes": 10})
        with pytest.raises(TooLarge):
            await broker.produce(ANYBODY, "t", draft([b"ok", b"x" * 11]), TO_ZERO)
        assert await fetched_values(broker) == []


@pytest.mark.parametrize("partition", [-1, 1, 10**9])
async def test_a_partition_that_is_not_there_is_not_found(partition: int) -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        with pytest.raises(NotFound):
            await broker.produce(ANYBODY, "t", numbered(0, 1), ProduceOptions(partition=partition))
        with pytest.raises(NotFound):
            await broker.fetch(ANYBODY, "t", partition, 0, ALL)


async def test_timestamps_follow_the_topic(store: ObjectStore) -> None:
    async with running_broker(store) as broker:
        await broker.create_topic(ANYBODY, "create", 1, {})
        await broker.create_topic(ANYBODY, "append", 1, {"message.timestamp.type": "LogAppendTime"})
        (created,) = await broker.produce(ANYBODY, "create", draft([b"a", b"b"], timestamps=[9, 4]), TO_ZERO)
        assert created.timestamp_ms == 9
        assert timestamps_of(await broker.fetch(ANYBODY, "create", 0, 0, ALL)) == [9, 4]
        (appended,) = await broker.produce(ANYBODY, "append", draft([b"a", b"b"], timestamps=[9, 4]), TO_ZERO)
        assert timestamps_of(await broker.fetch(ANYBODY, "append", 0, 0, ALL)) == [appended.timestamp_ms] * 2
        assert appended.timestamp_ms > 10**12


# ---- deletion


async def test_deleting_a_topic_ends_requests_that_wait_for_it() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", numbered(0, 2), TO_ZERO)
        waiting = asyncio.create_task(broker.fetch(ANYBODY, "t", 0, 2, FetchLimits(1, 1, 30_000)))
        await until(lambda: broker.measurements().waiting_fetches == 1)
        await broker.delete_topic(ANYBODY, "t")
        with pytest.raises(NotFound):
            await waiting


async def test_producing_while_a_topic_is_deleted_ends_in_an_answer_or_not_found(store: ObjectStore) -> None:
    async with running_broker(store, auto_create_topics_enable=False) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {})

        async def produce_until_gone() -> None:
            while True:
                await broker.produce(ANYBODY, "t", numbered(0, 3), ProduceOptions())

        producers = [asyncio.create_task(produce_until_gone()) for _ in range(5)]
        await until(lambda: broker.measurements().topics.get("t") is not None)
        await broker.delete_topic(ANYBODY, "t")
        ended = await asyncio.gather(*producers, return_exceptions=True)
        assert {type(error) for error in ended} == {NotFound}
        again = await broker.create_topic(ANYBODY, "t", 1, {})
        assert again.partition_count == 1
        assert await fetched_values(broker) == []


async def test_each_partition_is_told_apart_if_that_is_asked_for() -> None:
    gated = GatedObjectStore(MemoryObjectStore())
    async with running_broker(gated, commit_timeout_ms=200) as broker:
        topic = await broker.create_topic(ANYBODY, "t", 2, {})
        gated.hold(wal_prefix(topic.shards[1]))
        options = ProduceOptions(tell_each=True)
        two = await broker.produce(ANYBODY, "t", draft([b"a", b"b"], partitions=[0, 1]), options)
        assert [(one.partition, one.base_offset) for one in two] == [(0, 0), (1, None)]
        assert isinstance(two[1].error, Unavailable)
        with pytest.raises(Unavailable):
            await broker.produce(ANYBODY, "t", draft([b"c"], partitions=[1]), options)
