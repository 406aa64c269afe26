"""ListOffsets (2): the offset of a position in a partition: its first record, its end, a time, the largest timestamp.

`leader_epoch` is that of the leader that answers, as in the batches that Fetch gives. The positions of tiered storage
are those that Kafka 4.1 answers for a log without it: all records are local, and no record is tiered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import IntEnum

import pyarrow as pa
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v10.request import ListOffsetsPartition, ListOffsetsRequest
from kio.schema.list_offsets.v10.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

from tidelog.services.broker.api.fetch import EARLIEST, LATEST, Anchor, FetchedPart, FetchLimits, FetchPart, Position
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.apis.leader_epochs import NO_EPOCH, epoch_error, leader_epoch
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.error_codes import Family, error_code
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import TidelogError

AT_ONCE_MAX = 16
"""Partitions of a request that are looked up in parallel."""
NONE_FOUND = -1
_ONE_RECORD = FetchLimits(max_records=1, max_bytes=1)
_ENDS_ONLY = FetchLimits(max_records=0, max_bytes=0)


class _Special(IntEnum):
    """A timestamp that stands for a position."""

    LATEST = -1
    EARLIEST = -2
    LARGEST_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


_SINCE = {_Special.LARGEST_TIMESTAMP: 7, _Special.EARLIEST_LOCAL: 8, _Special.LATEST_TIERED: 9}
"""The first version of each; the others are in all versions."""
_ENDS = {_Special.LATEST: LATEST, _Special.EARLIEST: EARLIEST, _Special.EARLIEST_LOCAL: EARLIEST}


class ListOffsetsApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request: ListOffsetsRequest = decode(call, ListOffsetsRequest)
        asked = [(topic.name, each) for topic in request.topics for each in topic.partitions]
        found = iter(await self._looked_up(call, asked))
        topics = tuple(
            ListOffsetsTopicResponse(name=topic.name, partitions=tuple(next(found) for _ in topic.partitions))
            for topic in request.topics
        )
        return encode(call, ListOffsetsResponse(throttle_time=NO_TIME, topics=topics))

    async def _looked_up(
        self, call: Call, asked: Sequence[tuple[str, ListOffsetsPartition]]
    ) -> Sequence[ListOffsetsPartitionResponse]:
        found: list[ListOffsetsPartitionResponse] = []
        for first in range(0, len(asked), AT_ONCE_MAX):
            some = asked[first : first + AT_ONCE_MAX]
            found += await asyncio.gather(*(self._one(call, topic, each) for topic, each in some))
        return found

    async def _one(self, call: Call, topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        if not _is_known(call.version, asked.timestamp):
            return _response(asked, ErrorCode.unsupported_version)
        context = call.context.not_forwarded()
        epoch = leader_epoch(self._broker, context, topic, asked.partition_index)
        refusal = epoch_error(asked.current_leader_epoch, epoch)
        if refusal is not ErrorCode.none:
            return _response(asked, refusal)
        try:
            fetched = await self._fetched(context, topic, asked)
        except TidelogError as error:
            return _response(asked, error_code(error, Family.READ))
        return _found(asked, fetched, epoch)

    async def _fetched(self, context: RequestContext, topic: str, asked: ListOffsetsPartition) -> FetchedPart:
        """Raises the errors of the partition."""
        position = await self._position(context, topic, asked)
        limits = _ENDS_ONLY if asked.timestamp in _ENDS or asked.timestamp == _Special.LATEST_TIERED else _ONE_RECORD
        part = FetchPart(topic, asked.partition_index, position, 1)
        (fetched,) = await self._broker.fetch_parts(context, [part], limits)
        if fetched.error:
            raise fetched.error
        return fetched

    async def _position(self, context: RequestContext, topic: str, asked: ListOffsetsPartition) -> int | Position:
        if asked.timestamp == _Special.LARGEST_TIMESTAMP:
            return await self._broker.largest_timestamp(context, topic, asked.partition_index)
        if asked.timestamp == _Special.LATEST_TIERED:
            return EARLIEST
        return _ENDS.get(asked.timestamp) or Position(Anchor.TIMESTAMP, asked.timestamp)


def _is_known(version: int, timestamp: int) -> bool:
    """Whether the time, or the position that it stands for, is in `version`."""
    return timestamp >= 0 or (timestamp in list(_Special) and version >= _SINCE.get(_Special(timestamp), 0))


def _found(asked: ListOffsetsPartition, fetched: FetchedPart, epoch: int) -> ListOffsetsPartitionResponse:
    if asked.timestamp == _Special.LATEST_TIERED:
        return _response(asked, ErrorCode.none)
    if asked.timestamp in _ENDS:
        return _response(asked, ErrorCode.none, fetched.part.begin, NONE_FOUND, epoch)
    batches = fetched.fetched.batches if fetched.fetched else ()
    record = next((batch for batch in batches if batch.num_rows), None)
    if record is None:
        return _response(asked, ErrorCode.none)
    offset, time_ms = record["offset"][0].as_py(), record["timestamp"].cast(pa.int64())[0].as_py()
    return _response(asked, ErrorCode.none, offset, time_ms, epoch)


def _response(
    asked: ListOffsetsPartition,
    error: ErrorCode,
    offset: int = NONE_FOUND,
    time_ms: int = NONE_FOUND,
    epoch: int = NO_EPOCH,
) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=error, timestamp=time_ms, offset=offset, leader_epoch=epoch
    )
