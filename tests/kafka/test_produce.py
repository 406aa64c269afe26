"""Produce: batches of Kafka's clients become records of the log, in the order in which they arrive."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest
from kio.schema.errors import ErrorCode
from tests.anybody import ANYBODY
from tests.kafka.conftest import KafkaServed
from tests.kafka.kio_client import KioClient
from tests.kafka.records_client import PRODUCE_VERSIONS, produce, produce_request
from tests.kafka.sent_batches import BEGAN_MS, CONTROL, TRANSACTIONAL, Producer, records_of, sent, sent_values

from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.request_context import RequestContext

HERE = RequestContext("test")
ALL = FetchLimits(max_records=1_000, max_bytes=1 << 20)


@pytest.fixture(autouse=True)
async def events(served: KafkaServed) -> None:
    await served.broker.create_topic(HERE, "events", 1, {})


async def stored(served: KafkaServed) -> pa.Table:
    return pa.Table.from_batches((await served.broker.fetch(HERE, "events", 0, 0, ALL)).batches)


async def values(served: KafkaServed) -> list[bytes]:
    return (await stored(served))["value"].to_pylist()


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
async def test_every_version_appends_and_tells_the_offset(client: KioClient, version: int) -> None:
    first = await produce(client, "events", sent_values(b"a", b"b"), version=version)
    then = await produce(client, "events", sent_values(b"c"), version=version)
    assert (first.error_code, first.base_offset, then.base_offset) == (ErrorCode.none, 0, 2)
    assert first.log_append_time_ms in {None, -1} if hasattr(first, "log_append_time_ms") else True
    assert getattr(then, "log_start_offset", 0) == 0


async def test_an_answer_tells_where_the_log_begins(client: KioClient, served: KafkaServed) -> None:
    await produce(client, "events", sent_values(b"a", b"b"))
    await served.broker.delete_records(ANYBODY, "events", 0, 1)
    assert (await produce(client, "events", sent_values(b"c"))).log_start_offset == 1


async def test_records_are_those_that_other_readers_get_byte_for_byte(client: KioClient, served: KafkaServed) -> None:
    await produce(client, "events", sent_values(b"a", b""))
    found = await stored(served)
    assert found["key"].to_pylist() == [b"k0", b"k1"]
    assert found["value"].to_pylist() == [b"a", b""]
    assert found["timestamp"].cast(pa.int64()).to_pylist() == [BEGAN_MS, BEGAN_MS + 1]
    assert found["headers"].to_pylist()[0] == [{"key": "h", "value": b"a"}, {"key": "none", "value": None}]


async def test_requests_in_flight_are_appended_in_order_and_share_commits(
    client: KioClient, served: KafkaServed
) -> None:
    requests = [produce_request("events", sent(records_of(b"%d" % at), Producer(7, 0, at))) for at in range(20)]
    ids = [client.send(request) for request in requests]
    for at, (request, sent_id) in enumerate(zip(requests, ids, strict=True)):
        answer = (await client.answer_to(request, sent_id)).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (ErrorCode.none, at)
    assert await values(served) == [b"%d" % at for at in range(20)]
    entries = sum(shard.wal_next for shard in served.broker.status().shards)
    assert entries < 20, "one commit for each request would mean that none was placed before the answer to the other"


async def test_a_repeated_batch_is_in_the_log_once_and_a_gap_is_refused(client: KioClient, served: KafkaServed) -> None:
    batch = sent(records_of(b"a", b"b"), Producer(7, 0, 0))
    first, again = await produce(client, "events", batch), await produce(client, "events", batch)
    assert (first.base_offset, again.base_offset, again.error_code) == (0, 0, ErrorCode.none)
    gap = await produce(client, "events", sent(records_of(b"c"), Producer(7, 0, 3)))
    assert gap.error_code == ErrorCode.out_of_order_sequence_number
    assert await values(served) == [b"a", b"b"]


async def test_sequences_wrap_from_the_largest_int32_to_zero(client: KioClient, served: KafkaServed) -> None:
    await produce(client, "events", sent(records_of(b"a"), Producer(7, 0, 2**31 - 2)))
    across = await produce(client, "events", sent(records_of(b"b", b"c"), Producer(7, 0, 2**31 - 1)))
    after = await produce(client, "events", sent(records_of(b"d"), Producer(7, 0, 1)))
    assert [across.error_code, after.error_code] == [ErrorCode.none, ErrorCode.none]
    assert await values(served) == [b"a", b"b", b"c", b"d"]


def damaged(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (None, ErrorCode.invalid_record),
        (b"", ErrorCode.invalid_record),
        (b"short", ErrorCode.invalid_record),
        (damaged(sent_values(b"a")), ErrorCode.corrupt_message),
        (sent_values(b"a") + sent_values(b"b"), ErrorCode.invalid_record),
        (sent(records_of(b"a"), attributes=CONTROL), ErrorCode.invalid_record),
        (sent(records_of(b"a"), attributes=TRANSACTIONAL), ErrorCode.invalid_record),
        (sent(records_of(b"a"), attributes=7), ErrorCode.unsupported_compression_type),
        (sent(records_of()), ErrorCode.invalid_record),
        (sent_values(b"a")[:16] + b"\1" + sent_values(b"a")[17:], ErrorCode.invalid_record),
    ],
)
async def test_bytes_that_are_no_batch_are_refused_and_change_nothing(
    client: KioClient, served: KafkaServed, records: bytes | None, error: ErrorCode
) -> None:
    answer = await produce(client, "events", records)
    assert (answer.error_code, answer.base_offset) == (error, -1)
    assert answer.error_message, "the client can log why"
    assert (await produce(client, "events", sent_values(b"good"))).base_offset == 0


async def test_an_unknown_topic_and_an_unknown_partition_are_told(client: KioClient) -> None:
    for topic, partition in (("nothing", 0), ("events", 9)):
        answer = await produce(client, topic, sent_values(b"a"), partition=partition)
        assert answer.error_code == ErrorCode.unknown_topic_or_partition


async def test_acks_of_another_number_are_refused(client: KioClient) -> None:
    assert (await produce(client, "events", sent_values(b"a"), acks=5)).error_code == ErrorCode.invalid_required_acks


async def test_acks_0_is_not_answered(client: KioClient, served: KafkaServed) -> None:
    client.send(produce_request("events", sent_values(b"a"), acks=0))
    assert (await produce(client, "events", sent_values(b"b"))).base_offset == 1
    assert await values(served) == [b"a", b"b"]


async def test_an_error_with_acks_0_ends_the_connection(client: KioClient) -> None:
    client.send(produce_request("nothing", sent_values(b"a"), acks=0))
    assert await client.is_ended()


async def test_a_large_request_is_decoded_beside_the_event_loop(client: KioClient, served: KafkaServed) -> None:
    large = [b"%06d" % at * 20 for at in range(2_000)]
    answers = await asyncio.gather(produce(client, "events", sent_values(*large)))
    assert answers[0].error_code == ErrorCode.none
    found = await served.broker.fetch(HERE, "events", 0, 1_999, ALL)
    assert pa.Table.from_batches(found.batches)["value"].to_pylist() == large[-1:]
