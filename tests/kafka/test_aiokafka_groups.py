"""aiokafka's consumers share partitions in a classic group, commit, and go on where others stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from tests.broker.brokers import until
from tests.kafka.conftest import KafkaServed

from tidelog.services.broker.api.request_context import RequestContext

HERE = RequestContext("test")
PARTITIONS = 4
RECORDS = 40


@pytest.fixture(autouse=True)
async def events(served: KafkaServed) -> None:
    """Forty records in four partitions."""
    await served.broker.create_topic(HERE, "events", PARTITIONS, {})
    producer = AIOKafkaProducer(bootstrap_servers=f"127.0.0.1:{served.port}")
    await producer.start()
    for at in range(RECORDS):
        await producer.send_and_wait("events", b"%d" % at, partition=at % PARTITIONS)
    await producer.stop()


@asynccontextmanager
async def member(served: KafkaServed, **options: object) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        "events",
        bootstrap_servers=f"127.0.0.1:{served.port}",
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=100,
        **options,
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def some(consumer: AIOKafkaConsumer, count: int) -> set[bytes]:
    return {(await asyncio.wait_for(consumer.getone(), 20)).value for _ in range(count)}


async def test_a_group_reads_each_record_once_and_goes_on_behind_its_commit(served: KafkaServed) -> None:
    async with member(served) as first:
        before = await some(first, RECORDS // 2)
        await first.commit()
        committed = [await first.committed(TopicPartition("events", number)) for number in range(PARTITIONS)]
        assert sum(offset or 0 for offset in committed) == RECORDS // 2
    async with member(served) as second:
        after = await some(second, RECORDS // 2)
    assert before | after == {b"%d" % at for at in range(RECORDS)}


async def test_partitions_are_shared_and_given_back(served: KafkaServed) -> None:
    async with member(served) as first:
        await until(lambda: len(first.assignment()) == PARTITIONS)
        async with member(served) as second:
            await until(lambda: len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2)
            assert not first.assignment() & second.assignment()
        await until(lambda: len(first.assignment()) == PARTITIONS)


async def test_a_static_member_comes_back_without_a_rebalance(served: KafkaServed) -> None:
    async with member(served) as other, member(served, group_instance_id="one") as static:
        await until(lambda: len(other.assignment()) == len(static.assignment()) == PARTITIONS // 2)
        kept = static.assignment()
        generation = static._coordinator.generation  # the client tells it nowhere else
        await static._client.close()  # as if the process had died
        async with member(served, group_instance_id="one") as again:
            await until(lambda: again.assignment() == kept)
            assert again._coordinator.generation == generation
        static._closed = True


async def test_groups_are_listed_described_and_their_offsets_are_told(served: KafkaServed) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=f"127.0.0.1:{served.port}")
    await admin.start()
    try:
        async with member(served, client_id="reader") as consumer:
            await some(consumer, 1)
            await consumer.commit({TopicPartition("events", 2): (7, "a note")})
            assert ("billing", "consumer") in await admin.list_consumer_groups()
            (described,) = (await admin.describe_consumer_groups(["billing"]))[0].groups
            assert described[2:4] == ("Stable", "consumer")
            offsets = await admin.list_consumer_group_offsets("billing")
            assert (offsets[TopicPartition("events", 2)].offset, offsets[TopicPartition("events", 2)].metadata) == (
                7,
                "a note",
            )
    finally:
        await admin.close()
