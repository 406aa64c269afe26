"""librdkafka, as confluent-kafka brings it: an idempotent producer, both kinds of groups, administration.

A line that librdkafka logs as a warning or an error fails the test.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.kafka.conftest import KafkaServed

RECORDS = 200
PARTITIONS = 4
WAIT_S = 20.0


class Warnings(logging.Handler):
    """Keeps what librdkafka warns of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def logger() -> AsyncIterator[logging.Logger]:
    heard = Warnings()
    logger = logging.getLogger("tests.librdkafka")
    logger.addHandler(heard)
    yield logger
    logger.removeHandler(heard)
    assert heard.lines == []


def configured(served: KafkaServed, **options: Any) -> dict[str, Any]:
    dotted = {name.replace("_", "."): value for name, value in options.items()}
    return {"bootstrap.servers": f"127.0.0.1:{served.port}", **dotted}


@pytest.fixture(autouse=True)
async def events(served: KafkaServed, logger: logging.Logger) -> None:
    """A topic by the admin client, and records by an idempotent producer."""

    def create_and_fill() -> None:
        admin = AdminClient(configured(served), logger=logger)
        admin.create_topics([NewTopic("events", PARTITIONS)])["events"].result(WAIT_S)
        producer = Producer(configured(served, enable_idempotence=True, compression_type="lz4"), logger=logger)
        failed: list[object] = []
        for at in range(RECORDS):
            producer.produce(
                "events",
                b"%d" % at,
                partition=at % PARTITIONS,
                on_delivery=lambda error, _: error and failed.append(error),
            )
        assert producer.flush(WAIT_S) == 0
        assert failed == []

    await asyncio.to_thread(create_and_fill)


def read(consumer: Consumer, count: int) -> Sequence[bytes]:
    """The values of the next `count` records."""
    found: list[bytes] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), WAIT_S)
        assert messages, f"{len(found)} of {count} records came within {WAIT_S} s"
        for message in messages:
            assert message.error() is None
            found.append(message.value())
    return found


@asynccontextmanager
async def member(served: KafkaServed, logger: logging.Logger, **options: Any) -> AsyncIterator[Consumer]:
    settings = {"group_id": "billing", "auto_offset_reset": "earliest", "enable_auto_commit": False, **options}
    consumer = Consumer(configured(served, **settings), logger=logger)
    consumer.subscribe(["events"])
    try:
        yield consumer
    finally:
        await asyncio.to_thread(consumer.close)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_group_reads_all_and_the_next_member_goes_on(
    served: KafkaServed, logger: logging.Logger, protocol: str
) -> None:
    half = RECORDS // 2
    async with member(served, logger, group_protocol=protocol) as first:
        before = await asyncio.to_thread(read, first, half)
        await asyncio.to_thread(first.commit, asynchronous=False)
    async with member(served, logger, group_protocol=protocol) as second:
        after = await asyncio.to_thread(read, second, half)
    assert {*before, *after} == {b"%d" % at for at in range(RECORDS)}
    assert not {*before} & {*after}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_group_is_told_by_its_offsets_and_deleted(
    served: KafkaServed, logger: logging.Logger, protocol: str
) -> None:
    async with member(served, logger, group_protocol=protocol) as consumer:
        await asyncio.to_thread(read, consumer, RECORDS)
        await asyncio.to_thread(consumer.commit, asynchronous=False)

    def told() -> int:
        admin = AdminClient(configured(served), logger=logger)
        asked = [ConsumerGroupTopicPartitions("billing")]
        found = admin.list_consumer_group_offsets(asked)["billing"].result(WAIT_S)
        listed = admin.list_consumer_groups().result(WAIT_S)
        assert [group.group_id for group in listed.valid] == ["billing"]
        admin.delete_consumer_groups(["billing"])["billing"].result(WAIT_S)
        assert not admin.list_consumer_groups().result(WAIT_S).valid
        return sum(each.offset for each in found.topic_partitions)

    assert await asyncio.to_thread(told) == RECORDS


async def test_watermarks_and_times(served: KafkaServed, logger: logging.Logger) -> None:
    async with member(served, logger) as consumer:
        ends = await asyncio.to_thread(consumer.get_watermark_offsets, TopicPartition("events", 0), WAIT_S)
        assert ends == (0, RECORDS // PARTITIONS)
        asked = [TopicPartition("events", 0, 1)]
        (found,) = await asyncio.to_thread(consumer.offsets_for_times, asked, WAIT_S)
        assert found.offset == 0


async def test_all_topics_are_listed(served: KafkaServed, logger: logging.Logger) -> None:
    admin = AdminClient(configured(served), logger=logger)
    told = await asyncio.to_thread(admin.list_topics, timeout=WAIT_S)
    assert {name: len(topic.partitions) for name, topic in told.topics.items()} == {"events": PARTITIONS}
    assert [broker.port for broker in told.brokers.values()] == [served.port]
