"""DeleteRecords (21): deletes the records below an offset, or all that are committed (-1)."""

from __future__ import annotations

from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest
from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kio.schema.errors import ErrorCode

from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.error_codes import Family, error_code
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import TidelogError

_NO_OFFSET = -1


class DeleteRecordsApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request: DeleteRecordsRequest = decode(call, DeleteRecordsRequest)
        topics = [
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=tuple([await self._deleted(call, topic.name, each) for each in topic.partitions]),
            )
            for topic in request.topics
        ]
        return encode(call, DeleteRecordsResponse(throttle_time=NO_TIME, topics=tuple(topics)))

    async def _deleted(self, call: Call, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        context = call.context.not_forwarded()
        code, start = ErrorCode.none, _NO_OFFSET
        try:
            start = await self._broker.delete_records(context, topic, asked.partition_index, asked.offset)
        except TidelogError as error:
            code = error_code(error, Family.READ)
            if code is ErrorCode.invalid_request:  # an offset below -1
                code = ErrorCode.offset_out_of_range
        return DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=start, error_code=code)
