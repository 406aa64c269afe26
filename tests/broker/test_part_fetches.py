"""Fetches of many partitions: one wait, shared limits, errors by partition."""

import asyncio
import tracemalloc

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker, until
from tests.broker.drafts import draft, numbered, values_of
from tests.broker.part_reads import ALL, BYTES_MAX, fetch_parts, read_values

from tidelog.services.broker.api.fetch import Anchor, FetchLimits, FetchPart, Position
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.broker.read.shared_limits import READS_AT_ONCE
from tidelog.storage.errors import NotFound, OutOfRange
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore

EARLIEST, LATEST = Position(Anchor.EARLIEST), Position(Anchor.LATEST)
LONG_MS = 20_000


async def produce(broker: LocalBroker, number: int, *values: bytes) -> None:
    await broker.produce(ANYBODY, "t", draft(list(values)), ProduceOptions(partition=number))


def waiting(limits: FetchLimits = ALL) -> FetchLimits:
    return FetchLimits(limits.max_records, limits.max_bytes, wait_ms=LONG_MS)


@pytest.mark.parametrize("archived", [(), (0, 2), (0, 1, 2, 3, 4, 5)])
async def test_the_answers_are_in_the_order_of_the_request(store: ObjectStore, archived: tuple[int, ...]) -> None:
    async with running_broker(store, cache_max_bytes=0) as broker:
        await broker.create_topic(ANYBODY, "t", 6, {})
        for number in range(6):
            if number in archived:
                await produce(broker, number, b"%d" % number)
        await broker.archive_now()
        for number in range(6):
            if number not in archived:
                await produce(broker, number, b"%d" % number)
        order = (3, 0, 5, 1, 4, 2)
        answers = await fetch_parts(broker, dict.fromkeys(order, 0))
        assert [answer.part.partition for answer in answers] == list(order)
        assert read_values(answers) == {number: [b"%d" % number] for number in order}
        assert [answer.next_offset for answer in answers] == [1] * 6


async def test_limits_are_for_all_partitions_together() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "t", 3, {})
        for number in range(3):
            await produce(broker, number, *[b"x" * 10] * 4)
        offsets = {1: 0, 2: 0, 0: 0}
        few = await fetch_parts(broker, offsets, FetchLimits(6, BYTES_MAX))
        assert {number: len(values) for number, values in read_values(few).items()} == {1: 4, 2: 2}
        assert [answer.next_offset for answer in few] == [4, 2, 0]
        assert few[2].fetched is not None
        assert few[2].fetched.high_watermark == 4, "it shows that there is more"
        small = await fetch_parts(broker, offsets, FetchLimits(1_000, 65))
        assert {number: len(values) for number, values in read_values(small).items()} == {1: 4, 2: 2}
        tiny = await fetch_parts(broker, offsets, FetchLimits(1_000, 1))
        assert read_values(tiny) == {1: [b"x" * 10]}, "one record, however large"


async def test_a_large_record_waits_for_its_turn() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {})
        await produce(broker, 0, b"small")
        await produce(broker, 1, b"large" * 100)
        assert read_values(await fetch_parts(broker, {0: 0, 1: 0}, FetchLimits(10, 50))) == {0: [b"small"]}
        assert list(read_values(await fetch_parts(broker, {1: 0, 0: 0}, FetchLimits(10, 50)))) == [1]


async def test_each_partition_has_a_bound_of_its_own() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {})
        for number in range(2):
            await produce(broker, number, *[b"x" * 10] * 4)
        parts = [FetchPart("t", 0, 0, 25), FetchPart("t", 1, 0, 0)]
        answers = await broker.fetch_parts(ANYBODY, parts, ALL)
        assert [len(values_of(answer.fetched)) for answer in answers if answer.fetched] == [2, 1]


async def test_positions_are_looked_up_by_the_fetch() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "t", 5, {})
        for number in range(5):
            records = draft([b"0", b"1", b"2"], timestamps=[1_000, 2_000, 3_000])
            await broker.produce(ANYBODY, "t", records, ProduceOptions(partition=number))
        asked = {
            0: EARLIEST,
            1: LATEST,
            2: Position(Anchor.FROM_END, 1),
            3: Position(Anchor.TIMESTAMP, 1_500),
            4: Position(Anchor.TIMESTAMP, 9_000),
        }
        answers = await fetch_parts(broker, asked)
        assert [answer.part.offset for answer in answers] == [0, 3, 2, 1, 3]
        assert read_values(answers) == {0: [b"0", b"1", b"2"], 2: [b"2"], 3: [b"1", b"2"]}


async def test_errors_are_those_of_their_partition() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {})
        await produce(broker, 0, b"one")
        answers = await fetch_parts(broker, {0: 0, 1: 7, 2: 0}, waiting())
        assert read_values(answers) == {0: [b"one"]}
        assert isinstance(answers[1].error, OutOfRange)
        assert answers[1].error.high_watermark == 0
        assert isinstance(answers[2].error, NotFound)
        (unknown,) = await fetch_parts(broker, {0: 0}, waiting(), topic="unknown")
        assert isinstance(unknown.error, NotFound)


async def test_the_next_commit_to_any_partition_ends_the_wait() -> None:
    async with running_broker(MemoryObjectStore(), flush_interval_ms=0) as broker:
        await broker.create_topic(ANYBODY, "t", 200, {})
        poll = asyncio.ensure_future(fetch_parts(broker, dict.fromkeys(range(200), 0), waiting()))
        await until(lambda: broker.measurements().waiting_fetches == 1)
        await produce(broker, 137, b"here")
        answers = await poll
        assert read_values(answers) == {137: [b"here"]}
        assert broker.measurements().waiting_fetches == 0


async def test_the_wait_is_over_in_time_and_then_the_answer_is_empty() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "t", 3, {})
        answers = await fetch_parts(broker, dict.fromkeys(range(3), LATEST), FetchLimits(10, 1_000, wait_ms=20))
        assert [(answer.next_offset, answer.error, answer.advanced) for answer in answers] == [(0, None, False)] * 3


async def test_a_deleted_topic_and_a_stopping_broker_end_the_wait() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "t", 3, {})
        poll = asyncio.ensure_future(fetch_parts(broker, dict.fromkeys(range(3), 0), waiting()))
        await until(lambda: broker.measurements().waiting_fetches == 1)
        await broker.delete_topic(ANYBODY, "t")
        assert all(isinstance(answer.error, NotFound) for answer in await poll)
        await broker.create_topic(ANYBODY, "u", 3, {})
        poll = asyncio.ensure_future(fetch_parts(broker, dict.fromkeys(range(3), 0), waiting(), topic="u"))
        await until(lambda: broker.measurements().waiting_fetches == 1)
        broker.end_polls()
        assert not read_values(await poll)


async def test_a_poll_that_is_cancelled_leaves_nothing_behind() -> None:
    async with running_broker(MemoryObjectStore(), flush_interval_ms=0) as broker:
        await broker.create_topic(ANYBODY, "t", 3, {})
        poll = asyncio.ensure_future(fetch_parts(broker, dict.fromkeys(range(3), 0), waiting()))
        await until(lambda: broker.measurements().waiting_fetches == 1)
        poll.cancel()
        await asyncio.gather(poll, return_exceptions=True)
        assert broker.measurements().waiting_fetches == 0
        states = [state for led in broker.shards.led_shards() for state in led.leader.partitions]
        assert len(states) == 3
        assert not any(state.waiters for state in states)


async def test_reading_on_gets_every_record_once(store: ObjectStore) -> None:
    async with running_broker(store, cache_max_bytes=0) as broker:
        await broker.create_topic(ANYBODY, "t", 4, {})
        for batch in range(6):
            for number in range(4):
                await broker.produce(ANYBODY, "t", numbered(batch * 10, 10), ProduceOptions(partition=number))
            if batch in (1, 3):
                await broker.archive_now()
        offsets, read = dict.fromkeys(range(4), 0), {number: list[bytes]() for number in range(4)}
        while True:
            answers = await fetch_parts(broker, offsets, FetchLimits(13, BYTES_MAX))
            values = read_values(answers)
            if not values:
                break
            assert sum(map(len, values.values())) <= 13
            for answer in answers:
                read[answer.part.partition] += values.get(answer.part.partition, [])
            moved = {answer.part.partition: answer.next_offset or 0 for answer in answers}
            first = next(iter(moved))
            offsets = {**{number: offset for number, offset in moved.items() if number != first}, first: moved[first]}
        assert all(values == [b"%d" % n for n in range(60)] for values in read.values())


async def test_a_wait_over_many_partitions_is_one_wait() -> None:
    """It needs no task, timer or future per partition: a poll of 1,000 takes little more than its request."""
    partitions, polls = 1_000, 30
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "t", partitions, {})
        await fetch_parts(broker, dict.fromkeys(range(partitions), 0))
        parts = [FetchPart("t", number, 0, 1) for number in range(partitions)]
        tracemalloc.start()
        tasks = [asyncio.ensure_future(broker.fetch_parts(ANYBODY, parts, waiting())) for _ in range(polls)]
        await until(lambda: broker.measurements().waiting_fetches == polls)
        assert len(asyncio.all_tasks()) < polls + 30
        held_bytes, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        broker.end_polls()
        await asyncio.gather(*tasks)
        assert held_bytes / polls < 500 * partitions


async def test_cold_partitions_cost_requests_only_as_far_as_the_limits_go() -> None:
    counted = CountingObjectStore(MemoryObjectStore())
    async with running_broker(counted, cache_max_bytes=0) as broker:
        await broker.create_topic(ANYBODY, "t", 20, {})
        for number in range(20):
            await produce(broker, number, b"x" * 100)
        await broker.archive_now()
        before = counted.usage()
        answers = await fetch_parts(broker, dict.fromkeys(range(20), 0), FetchLimits(2, BYTES_MAX))
        assert len(read_values(answers)) == 2
        assert (counted.usage() - before).requests() <= 2 * READS_AT_ONCE
