"""The asynchronous classes with a real broker: the same results, callbacks on the loop, cancelled polls, closing."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Sequence
from inspect import signature

import pytest
from tests.attempts import attempts, quicker_than

from tidelog.client import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    ConsumerOptions,
    DeliveredRecord,
    Producer,
    ProducerOptions,
    TopicPartition,
)
from tidelog.storage.errors import Invalid, TooLarge

WAIT_S = 20.0


async def test_records_go_there_and_back(broker: str, topic: str) -> None:
    async with AsyncProducer(broker, topic) as producer:
        for number in range(100):
            await producer.send(b"%d" % number, partition=number % 3)
        await producer.flush()
        last = await producer.send_and_wait(b"last", partition=1)
    assert last == DeliveredRecord(topic, 1, 33)
    async with AsyncConsumer(broker, topic) as consumer:
        found = [record.value async for record in consumer.records(follow=False)]
    assert sorted(found) == sorted([*(b"%d" % number for number in range(100)), b"last"])


async def test_a_refused_record_fails_its_future_only(broker: str, topic: str) -> None:
    async with AsyncProducer(broker, topic) as producer:
        good = await producer.send_future(b"good", partition=0)
        bad = await producer.send_future(bytes(2_000_000), partition=0)
        with pytest.raises(TooLarge):
            await bad
        assert (await good).offset == 0
        await producer.flush()


async def test_sending_waits_for_room_without_holding_the_loop(broker: str, topic: str) -> None:
    options = ProducerOptions(buffer_bytes=200_000, batch_bytes=50_000)
    async with AsyncProducer(broker, topic, options) as producer:
        await asyncio.gather(*(producer.send(bytes(10_000), partition=n % 3) for n in range(200)))
        await producer.flush()
    async with AsyncAdmin(broker) as admin:
        assert (await admin.topic(topic)).records == 200


async def test_a_group_goes_on_and_its_callbacks_run_on_the_loop(broker: str, topic: str) -> None:
    group, loop = f"g{uuid.uuid4().hex}", asyncio.get_running_loop()
    told: list[str] = []

    async def assigned(consumer: AsyncConsumer, partitions: Sequence[TopicPartition]) -> None:
        assert asyncio.get_running_loop() is loop
        await consumer.seek(partitions[0], "start")
        told.append(f"assigned {len(partitions)}")

    def revoked(_: AsyncConsumer, partitions: Sequence[TopicPartition]) -> None:
        assert asyncio.get_running_loop() is loop
        told.append(f"revoked {len(partitions)}")

    async with AsyncProducer(broker, topic) as producer:
        await producer.send(b"one", partition=0)
    async with AsyncConsumer(broker, group=group) as consumer:
        await consumer.subscribe(topic, on_assign=assigned, on_revoke=revoked)
        async for record in consumer:
            assert record.value == b"one"
            break
        await consumer.commit()
    assert told == ["assigned 3", "revoked 3"]
    async with AsyncAdmin(broker) as admin:
        assert (await admin.group_offsets(group))[TopicPartition(topic, 0)].offset == 1
        assert (await admin.group(group)).members == ()


async def test_a_cancelled_poll_loses_nothing(broker: str, topic: str) -> None:
    async with AsyncConsumer(broker, topic, start="end") as consumer, AsyncProducer(broker, topic) as producer:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.poll(5.0), 0.2)
        await producer.send_and_wait(b"late", partition=0)
        while await consumer.position(TopicPartition(topic, 0)) == 0:
            continue  # until the poll that was cancelled has its batch
        batch = await consumer.poll(5.0)
        assert batch is not None
        assert batch.records.column("value").to_pylist() == [b"late"]


async def test_closing_ends_a_poll_that_waits(broker: str, topic: str) -> None:
    for attempt in attempts():
        consumer = AsyncConsumer(broker, topic, start="end", options=ConsumerOptions(close_timeout_s=1.0))
        await consumer.start()
        polling = asyncio.create_task(consumer.poll(60.0))
        await asyncio.sleep(0.1)  # it may have begun to wait, or not
        with attempt, quicker_than(2.0, "closing"):
            await consumer.close()
        with contextlib.suppress(Invalid):
            assert await polling is None
    with pytest.raises(Invalid, match="closed"):
        consumer.held.poll(0)


def test_parameters_are_those_of_the_synchronous_classes() -> None:
    for asynchronous, synchronous in ((AsyncProducer, Producer), (AsyncConsumer, Consumer), (AsyncAdmin, Admin)):
        assert signature(asynchronous).parameters == signature(synchronous).parameters
    assert signature(AsyncProducer.send).parameters == signature(Producer.send).parameters
    assert signature(AsyncProducer.send_and_wait).return_annotation == "DeliveredRecord"
    with pytest.raises(TypeError, match="compression"):
        AsyncProducer("http://127.0.0.1:1", "web", compression="none")  # type: ignore[call-arg]  # the mistake under test


async def test_a_class_that_was_not_started_says_so(broker: str) -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await AsyncProducer(broker, "web").send(b"x")
    with pytest.raises(RuntimeError, match="async with"):
        await AsyncConsumer(broker, "web").poll()
