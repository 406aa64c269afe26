"""Fetch and ListOffsets: records as batches, long polls, and offsets by time."""

from __future__ import annotations

import asyncio

import pytest
from kio.schema.errors import ErrorCode
from tests.kafka.conftest import KafkaServed
from tests.kafka.kio_client import KioClient
from tests.kafka.records_client import (
    FETCH_VERSIONS,
    LIST_OFFSETS_VERSIONS,
    fetch,
    fetch_request,
    list_offsets,
    produce,
)
from tests.kafka.sent_batches import BEGAN_MS, received, records_of, sent_values

from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.kafka.apis.fetch import TAKES_ANY_CODEC_SINCE

HERE = RequestContext("test")
LONG_MS = 15_000


@pytest.fixture(autouse=True)
async def three_records(served: KafkaServed, client: KioClient) -> None:
    """Three records, by two requests."""
    await served.broker.create_topic(HERE, "events", 1, {})
    await produce(client, "events", sent_values(b"a", b"b"))
    await produce(client, "events", sent_values(b"c"))


@pytest.mark.parametrize("version", FETCH_VERSIONS)
async def test_every_version_returns_the_records_that_were_sent(client: KioClient, version: int) -> None:
    answer = await fetch(client, "events", 0, version=version)
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (ErrorCode.none, 3, 3)
    first, second, third = received(answer.records)
    assert [first, second] == list(records_of(b"a", b"b"))
    assert (third.offset_delta, third.value) == (2, b"c")


async def test_encoded_records_begin_at_the_offset_in_the_middle_of_a_batch(client: KioClient) -> None:
    answer = await fetch(client, "events", 1, version=TAKES_ANY_CODEC_SINCE - 1)
    assert [record.value for record in received(answer.records)] == [b"b", b"c"]


async def test_at_least_one_record_comes_whatever_the_limit(client: KioClient) -> None:
    assert len(received((await fetch(client, "events", 0, max_bytes=1)).records)) >= 1


async def test_a_fetch_at_the_end_waits_for_a_record(client: KioClient, served: KafkaServed) -> None:
    waiting = asyncio.ensure_future(fetch(client, "events", 3, wait_ms=LONG_MS))
    other = await served.connect()
    await produce(other, "events", sent_values(b"d"))
    answer = await waiting
    await other.aclose()
    assert [(record.offset_delta, record.value) for record in received(answer.records)] == [(3, b"d")]


async def test_a_fetch_waits_until_there_are_min_bytes(client: KioClient, served: KafkaServed) -> None:
    waiting = asyncio.ensure_future(fetch(client, "events", 3, wait_ms=LONG_MS, min_bytes=5_000))
    other = await served.connect()
    for at in range(5):
        await produce(other, "events", sent_values(bytes([at]) * 2_000))
    answer = await waiting
    await other.aclose()
    assert len(received(answer.records)) >= 2


async def test_a_fetch_without_new_records_is_answered_after_its_wait(client: KioClient) -> None:
    answer = await fetch(client, "events", 3, wait_ms=50)
    assert (answer.error_code, answer.high_watermark, received(answer.records)) == (ErrorCode.none, 3, [])


async def test_a_waiting_fetch_is_answered_when_the_broker_stops(client: KioClient, served: KafkaServed) -> None:
    request = fetch_request("events", 3, wait_ms=LONG_MS)
    sent_id = client.send(request)
    assert (await fetch_later(served)).error_code == ErrorCode.none, "the broker has taken the first request"
    served.door.drain()
    answer = await client.answer_to(request, sent_id)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.none


async def fetch_later(served: KafkaServed) -> object:
    """A fetch by another client."""
    other = await served.connect()
    try:
        return await fetch(other, "events", 0)
    finally:
        await other.aclose()


@pytest.mark.parametrize(
    ("topic", "offset", "error"),
    [
        ("events", 4, ErrorCode.offset_out_of_range),
        ("events", -5, ErrorCode.offset_out_of_range),
        ("nothing", 0, ErrorCode.unknown_topic_or_partition),
    ],
)
async def test_what_cannot_be_fetched_is_told(client: KioClient, topic: str, offset: int, error: ErrorCode) -> None:
    answer = await fetch(client, topic, offset, wait_ms=LONG_MS)
    assert (answer.error_code, answer.high_watermark) == (error, -1)


async def test_a_session_is_refused_so_that_the_client_goes_on_without_one(client: KioClient) -> None:
    answer = await client.ask(fetch_request("events", 0, session=17))
    assert (answer.error_code, answer.session_id, answer.responses) == (ErrorCode.fetch_session_id_not_found, 0, ())
    assert (await client.ask(fetch_request("events", 0))).session_id == 0


@pytest.mark.parametrize("version", LIST_OFFSETS_VERSIONS)
async def test_every_version_finds_the_ends_and_a_time(client: KioClient, version: int) -> None:
    end, first = await list_offsets(client, "events", -1, version), await list_offsets(client, "events", -2, version)
    assert (end.offset, end.timestamp, first.offset) == (3, -1, 0)
    found = await list_offsets(client, "events", BEGAN_MS + 1, version)
    assert (found.offset, found.timestamp) == (1, BEGAN_MS + 1)


async def test_no_record_is_found_after_the_last_time(client: KioClient) -> None:
    found = await list_offsets(client, "events", BEGAN_MS + 2)
    assert (found.error_code, found.offset, found.timestamp) == (ErrorCode.none, -1, -1)


async def test_the_offset_of_an_unknown_topic_is_refused(client: KioClient) -> None:
    assert (await list_offsets(client, "nothing", -1)).error_code == ErrorCode.unknown_topic_or_partition
