"""Clients that misbehave towards a real broker, while another client is answered."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from confluent_kafka import Producer
from tests.kafka.conftest import KafkaServed
from tests.kafka.kio_client import KioClient
from tests.kafka.records_client import fetch, fetch_request, produce, produce_request
from tests.kafka.sent_batches import received, sent_values
from tests.kafka.test_mutated_requests import peak_bytes, restarted_peak
from tests.record_batches.reference import Record

from tidelog.services.broker.api.request_context import BROKER_ITSELF
from tidelog.services.kafka.listener.request_memory import CONNECTION_REQUESTS_MAX

TOPIC = "events"
IN_FLIGHT = 2 * CONNECTION_REQUESTS_MAX
VALUE = b"x" * (500 << 10)
UNREAD_BYTES_MAX = 64 << 20
"""What a client that does not read may cost; its answers would be four times as large."""


@pytest.fixture(autouse=True)
async def events(served: KafkaServed) -> None:
    await served.broker.create_topic(BROKER_ITSELF, TOPIC, 1, {})


@pytest.fixture
async def other(served: KafkaServed) -> AsyncIterator[KioClient]:
    """Another client."""
    connected = await served.connect()
    yield connected
    await connected.aclose()


async def test_requests_in_flight_beyond_the_bound_are_all_answered_in_order(
    served: KafkaServed, other: KioClient
) -> None:
    client = await served.connect()
    requests = [produce_request(TOPIC, sent_values(b"%d" % number)) for number in range(IN_FLIGHT)]
    ids = [client.send(request) for request in requests]
    assert (await produce(other, TOPIC, sent_values(b"other"))).error_code == 0
    answers = [await client.answer_to(*each) for each in zip(requests, ids, strict=True)]
    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers]
    assert offsets == sorted(set(offsets))
    found = [record.value for record in received((await fetch(other, TOPIC, 0)).records)]
    assert [value for value in found if value != b"other"] == [b"%d" % number for number in range(IN_FLIGHT)]
    await client.aclose()


async def test_a_client_that_asks_for_much_and_reads_nothing_takes_little_memory(
    served: KafkaServed, other: KioClient
) -> None:
    await asyncio.to_thread(fill, served.port)
    client = await served.connect()
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    before = restarted_peak()
    for _ in range(IN_FLIGHT):
        client.send(fetch_request(TOPIC, 0, max_bytes=2 << 20))
    for _ in range(10):
        assert (await fetch(other, TOPIC, 0)).records is not None
        await asyncio.sleep(0.02)
    assert peak_bytes() - before < UNREAD_BYTES_MAX
    await client.aclose()


def fill(port: int) -> None:
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}"})
    for _ in range(2):
        producer.produce(TOPIC, VALUE, partition=0)
    assert producer.flush(20) == 0


@pytest.mark.parametrize("gone", ["closed", "reset", "half closed"])
async def test_requests_of_a_client_that_is_gone_are_carried_out_once(
    served: KafkaServed, other: KioClient, gone: str
) -> None:
    client = await served.connect()
    for number in range(10):
        client.send(produce_request(TOPIC, sent_values(b"%d" % number)))
    await client.writer.drain()
    match gone:
        case "closed":
            client.writer.close()
        case "reset":
            linger = b"\1\0\0\0\0\0\0\0"
            client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            await asyncio.sleep(0.1)  # a reset takes back what has not been read
            client.writer.transport.abort()
        case _:
            client.writer.write_eof()
    async with asyncio.timeout(20):
        found: list[Record] = []
        while len(found) < 10:
            found += received((await fetch(other, TOPIC, len(found), wait_ms=1_000)).records)
    assert [record.value for record in found] == [b"%d" % number for number in range(10)]
    await client.aclose()
