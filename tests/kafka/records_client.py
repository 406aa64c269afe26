"""Produce, Fetch and ListOffsets requests of every version, for one partition."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

from kio.index import load_request_schema
from tests.kafka.kio_client import KioClient

PRODUCE, FETCH, LIST_OFFSETS = 0, 1, 2
PRODUCE_VERSIONS, FETCH_VERSIONS, LIST_OFFSETS_VERSIONS = range(3, 12), range(4, 13), range(1, 11)


def built(schema: Any, **values: Any) -> Any:
    """A message with those of `values` that its version has."""
    return schema(**{name: value for name, value in values.items() if name in schema.__dataclass_fields__})


def schemas_of(api_key: int, version: int) -> Any:
    """kio's module with the classes of a request."""
    return sys.modules[load_request_schema(api_key, version).__module__]


def produce_request(
    topic: str, records: bytes | None, *, version: int = 9, acks: int = -1, partition: int = 0, timeout_s: float = 10
) -> Any:
    schemas = schemas_of(PRODUCE, version)
    part = schemas.PartitionProduceData(index=partition, records=records)
    data = schemas.TopicProduceData(name=topic, partition_data=(part,))
    return built(
        schemas.ProduceRequest,
        transactional_id=None,
        acks=acks,
        timeout=timedelta(seconds=timeout_s),
        topic_data=(data,),
    )


async def produce(client: KioClient, topic: str, records: bytes | None, **options: Any) -> Any:
    """The answer for the partition."""
    answer = await client.ask(produce_request(topic, records, **options))
    return answer.responses[0].partition_responses[0]


def fetch_request(
    topic: str,
    offset: int,
    *,
    version: int = 12,
    wait_ms: int = 0,
    min_bytes: int = 1,
    session: int = 0,
    partition: int = 0,
    max_bytes: int = 1 << 20,
) -> Any:
    schemas = schemas_of(FETCH, version)
    part = built(
        schemas.FetchPartition,
        partition=partition,
        fetch_offset=offset,
        log_start_offset=-1,
        partition_max_bytes=1 << 20,
    )
    return built(
        schemas.FetchRequest,
        replica_id=-1,
        max_wait=timedelta(milliseconds=wait_ms),
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=1,
        session_id=session,
        topics=(schemas.FetchTopic(topic=topic, partitions=(part,)),),
        forgotten_topics_data=(),
    )


async def fetch(client: KioClient, topic: str, offset: int, **options: Any) -> Any:
    """The answer for the partition."""
    answer = await client.ask(fetch_request(topic, offset, **options))
    return answer.responses[0].partitions[0]


async def list_offsets(client: KioClient, topic: str, time_ms: int, version: int = 7) -> Any:
    """The answer for partition 0. `time_ms`: -1 the end, -2 the first offset."""
    schemas = schemas_of(LIST_OFFSETS, version)
    part = schemas.ListOffsetsPartition(partition_index=0, timestamp=time_ms)
    asked = schemas.ListOffsetsTopic(name=topic, partitions=(part,))
    others = {"replica_id": -1, "isolation_level": 0, "timeout": timedelta(seconds=10)}
    answer = await client.ask(built(schemas.ListOffsetsRequest, topics=(asked,), **others))
    return answer.topics[0].partitions[0]
