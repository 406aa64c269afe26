"""ListOffsets (2): the first offset, the end, or the first record at or after a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pyarrow as pa
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsRequest
from kio.schema.list_offsets.v7.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

from tidelog.services.broker.api.fetch import EARLIEST, LATEST, Anchor, FetchedPart, FetchLimits, FetchPart, Position
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.error_codes import Family, error_code
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode

AT_ONCE_MAX = 16
"""Partitions of a request that are looked up in parallel."""
NONE_FOUND = -1
_ENDS = {-1: LATEST, -2: EARLIEST}
_ONE_RECORD = FetchLimits(max_records=1, max_bytes=1)
_ENDS_ONLY = FetchLimits(max_records=0, max_bytes=0)


class ListOffsetsApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request: ListOffsetsRequest = decode(call, ListOffsetsRequest)
        asked = [(topic.name, each) for topic in request.topics for each in topic.partitions]
        found = iter(await self._looked_up(call.context.not_forwarded(), asked))
        topics = tuple(
            ListOffsetsTopicResponse(name=topic.name, partitions=tuple(next(found) for _ in topic.partitions))
            for topic in request.topics
        )
        return encode(call, ListOffsetsResponse(throttle_time=NO_TIME, topics=topics))

    async def _looked_up(
        self, context: RequestContext, asked: Sequence[tuple[str, ListOffsetsPartition]]
    ) -> Sequence[ListOffsetsPartitionResponse]:
        found: list[ListOffsetsPartitionResponse] = []
        for first in range(0, len(asked), AT_ONCE_MAX):
            some = asked[first : first + AT_ONCE_MAX]
            found += await asyncio.gather(*(self._one(context, topic, each) for topic, each in some))
        return found

    async def _one(
        self, context: RequestContext, topic: str, asked: ListOffsetsPartition
    ) -> ListOffsetsPartitionResponse:
        position = _ENDS.get(asked.timestamp) or Position(Anchor.TIMESTAMP, asked.timestamp)
        if position.anchor is Anchor.TIMESTAMP and asked.timestamp < 0:
            return _failed(asked, ErrorCode.unsupported_version)  # the record with the largest timestamp (KIP-734)
        limits = _ONE_RECORD if position.anchor is Anchor.TIMESTAMP else _ENDS_ONLY
        part = FetchPart(topic, asked.partition_index, position, 1)
        (fetched,) = await self._broker.fetch_parts(context, [part], limits)
        if fetched.error:
            return _failed(asked, error_code(fetched.error, Family.READ))
        return _time_found(asked, fetched) if limits is _ONE_RECORD else _end_found(asked, fetched)


def _end_found(asked: ListOffsetsPartition, fetched: FetchedPart) -> ListOffsetsPartitionResponse:
    return _response(asked, ErrorCode.none, fetched.part.begin, NONE_FOUND)


def _time_found(asked: ListOffsetsPartition, fetched: FetchedPart) -> ListOffsetsPartitionResponse:
    batches = fetched.fetched.batches if fetched.fetched else ()
    record = next((batch for batch in batches if batch.num_rows), None)
    if record is None:
        return _response(asked, ErrorCode.none, NONE_FOUND, NONE_FOUND)
    offset, time_ms = record["offset"][0].as_py(), record["timestamp"].cast(pa.int64())[0].as_py()
    return _response(asked, ErrorCode.none, offset, time_ms)


def _failed(asked: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return _response(asked, error, NONE_FOUND, NONE_FOUND)


def _response(asked: ListOffsetsPartition, error: ErrorCode, offset: int, time_ms: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=error, timestamp=time_ms, offset=offset
    )
