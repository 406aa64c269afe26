"""Producer ids and leader epochs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.offset_for_leader_epoch.v4.request import OffsetForLeaderPartition, OffsetForLeaderTopic
from tests.kafka.conftest import KafkaServed
from tests.kafka.kio_client import KioClient
from tests.kafka.records_client import built, fetch, produce
from tests.kafka.sent_batches import sent_values

from tidelog.services.broker.api.request_context import RequestContext

HERE = RequestContext("test")
INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH = 22, 23


def ids_request(version: int, transactional_id: str | None = None) -> Any:
    schema = load_request_schema(INIT_PRODUCER_ID, version)
    return built(schema, transactional_id=transactional_id, transaction_timeout=timedelta(seconds=1))


@pytest.mark.parametrize("version", range(5))
async def test_each_producer_gets_an_id_of_its_own(client: KioClient, version: int) -> None:
    answers = [await client.ask(ids_request(version)) for _ in range(3)]
    assert [(each.error_code, each.producer_epoch) for each in answers] == [(ErrorCode.none, 0)] * 3
    assert len({each.producer_id for each in answers}) == 3
    assert all(each.producer_id >= 0 for each in answers)


async def test_a_transactional_id_is_refused(client: KioClient) -> None:
    answer = await client.ask(ids_request(4, "orders"))
    assert (answer.error_code, answer.producer_id) == (ErrorCode.transactional_id_authorization_failed, -1)


async def current_epoch(served: KafkaServed) -> int:
    """Of the only partition, with two records."""
    await served.broker.create_topic(HERE, "events", 1, {})
    return served.broker.route(HERE, "events", 0).epoch


def epoch_request(epoch: int, known: int = -1) -> Any:
    part = OffsetForLeaderPartition(partition=0, current_leader_epoch=known, leader_epoch=epoch)
    schema = load_request_schema(OFFSET_FOR_LEADER_EPOCH, 4)
    return schema(topics=(OffsetForLeaderTopic(topic="events", partitions=(part,)),))


async def test_an_epoch_ends_where_its_records_end(client: KioClient, served: KafkaServed) -> None:
    epoch = await current_epoch(served)
    await produce(client, "events", sent_values(b"a", b"b"))
    found = (await client.ask(epoch_request(epoch))).topics[0].partitions[0]
    assert (found.error_code, found.leader_epoch, found.end_offset) == (ErrorCode.none, epoch, 2)
    later = (await client.ask(epoch_request(epoch + 1))).topics[0].partitions[0]
    assert (later.error_code, later.leader_epoch, later.end_offset) == (ErrorCode.none, -1, -1)


@pytest.mark.parametrize(
    ("difference", "error"), [(-1, ErrorCode.fenced_leader_epoch), (1, ErrorCode.unknown_leader_epoch)]
)
async def test_a_client_that_knows_another_epoch_is_told(
    client: KioClient, served: KafkaServed, difference: int, error: ErrorCode
) -> None:
    known = await current_epoch(served) + difference
    assert known >= 0
    asked = (await client.ask(epoch_request(known, known))).topics[0].partitions[0]
    assert asked.error_code == error
    part = FetchPartition(partition=0, current_leader_epoch=known, fetch_offset=0, partition_max_bytes=100)
    request = FetchRequest(
        max_wait=timedelta(seconds=15),
        min_bytes=1,
        topics=(FetchTopic(topic="events", partitions=(part,)),),
        forgotten_topics_data=(),
    )
    answer = (await client.ask(request)).responses[0].partitions[0]
    assert (answer.error_code, answer.high_watermark) == (error, -1)


async def test_fetched_batches_have_the_epoch_of_the_leader(client: KioClient, served: KafkaServed) -> None:
    epoch = await current_epoch(served)
    await produce(client, "events", sent_values(b"a"))
    batch = (await fetch(client, "events", 0)).records
    assert int.from_bytes(batch[12:16], "big", signed=True) == epoch
