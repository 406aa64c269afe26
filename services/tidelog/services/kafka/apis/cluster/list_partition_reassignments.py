"""ListPartitionReassignments (46): none is ever under way, because the bucket holds the records."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.list_partition_reassignments.v0.response import ListPartitionReassignmentsResponse

from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode


class ListPartitionReassignmentsApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        decode(call, ListPartitionReassignmentsRequest)
        answer = ListPartitionReassignmentsResponse(
            throttle_time=NO_TIME, error_code=ErrorCode.none, error_message=None, topics=()
        )
        return encode(call, answer)
