"""DeleteRecords: the log begins at the offset, for every reader."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.kafka.conftest import KafkaServed
from tests.kafka.kio_client import KioClient
from tests.kafka.records_client import list_offsets, produce, schemas_of
from tests.kafka.sent_batches import sent_values

from tidelog.services.broker.api.request_context import RequestContext

HERE = RequestContext("test")
DELETE_RECORDS = 21


@pytest.fixture(autouse=True)
async def three_records(served: KafkaServed, client: KioClient) -> None:
    await served.broker.create_topic(HERE, "events", 1, {})
    await produce(client, "events", sent_values(b"a", b"b", b"c"))


async def deleted(client: KioClient, before_offset: int, *, topic: str = "events", version: int = 2) -> Any:
    schemas = schemas_of(DELETE_RECORDS, version)
    part = schemas.DeleteRecordsPartition(partition_index=0, offset=before_offset)
    asked = schemas.DeleteRecordsTopic(name=topic, partitions=(part,))
    answer = await client.ask(schemas.DeleteRecordsRequest(topics=(asked,), timeout=timedelta(seconds=10)))
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize("version", range(3))
async def test_every_version_moves_the_first_offset(client: KioClient, version: int) -> None:
    found = await deleted(client, 2, version=version)
    assert (found.error_code, found.low_watermark) == (ErrorCode.none, 2)
    assert (await list_offsets(client, "events", -2)).offset == 2


async def test_minus_one_deletes_all_that_is_committed(client: KioClient) -> None:
    assert (await deleted(client, -1)).low_watermark == 3


@pytest.mark.parametrize(
    ("topic", "offset", "error"),
    [("events", 4, ErrorCode.offset_out_of_range), ("nothing", 1, ErrorCode.unknown_topic_or_partition)],
)
async def test_what_cannot_be_deleted_is_told(client: KioClient, topic: str, offset: int, error: ErrorCode) -> None:
    found = await deleted(client, offset, topic=topic)
    assert (found.error_code, found.low_watermark) == (error, -1)
