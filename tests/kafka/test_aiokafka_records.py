"""aiokafka, as it comes from its registry, produces and consumes records: with every codec, in order, by time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.structs import ConsumerRecord
from tests.kafka.conftest import KafkaServed

from tidelog.services.broker.api.request_context import RequestContext

HERE = RequestContext("test")
PLACE = TopicPartition("events", 0)
BEGAN_MS = 1_700_000_000_000


@pytest.fixture(autouse=True)
async def events(served: KafkaServed) -> None:
    await served.broker.create_topic(HERE, "events", 1, {})


async def consumed(served: KafkaServed, count: int, from_ms: int | None = None) -> Sequence[ConsumerRecord]:
    """The first `count` records of the partition, or of those from `from_ms` on."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=f"127.0.0.1:{served.port}", enable_auto_commit=False, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        consumer.assign([PLACE])
        if from_ms is not None:
            found = (await consumer.offsets_for_times({PLACE: from_ms}))[PLACE]
            consumer.seek(PLACE, found.offset)
        return [await asyncio.wait_for(consumer.getone(), 20) for _ in range(count)]
    finally:
        await consumer.stop()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_what_one_client_sends_another_reads(served: KafkaServed, codec: str | None) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=f"127.0.0.1:{served.port}", compression_type=codec, linger_ms=20)
    await producer.start()
    try:
        sent = [
            await producer.send("events", b"v%d" % at * 50, b"k", timestamp_ms=BEGAN_MS + at, headers=[("h", b"x")])
            for at in range(300)
        ]
        places = [await each for each in sent]
    finally:
        await producer.stop()
    assert [place.offset for place in places] == list(range(300))
    found = await consumed(served, 300)
    assert [record.value for record in found] == [b"v%d" % at * 50 for at in range(300)]
    assert {(record.key, record.headers) for record in found} == {(b"k", (("h", b"x"),))}
    assert [record.timestamp for record in found] == [BEGAN_MS + at for at in range(300)]
    assert (await consumed(served, 1, from_ms=BEGAN_MS + 200))[0].offset == 200
