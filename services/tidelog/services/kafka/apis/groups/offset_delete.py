"""OffsetDelete (47): forgets committed offsets of topics to which no member subscribes."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.offset_delete.v0.request import OffsetDeleteRequest, OffsetDeleteRequestTopic
from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from tidelog.services.kafka.apis.groups.group_codes import classic_code
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import GroupNotEmpty, TidelogError
from tidelog.wire.groups import DeleteOffsets, DescribeGroup, TopicPartitions


class OffsetDeleteApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request: OffsetDeleteRequest = decode(call, OffsetDeleteRequest)
        try:
            await self._broker.groups.call(call.context, request.group_id, DescribeGroup())
            topics = [await self._topic(call, request.group_id, topic) for topic in request.topics]
        except TidelogError as error:
            return encode(call, OffsetDeleteResponse(error_code=classic_code(error), throttle_time=NO_TIME, topics=()))
        return encode(
            call, OffsetDeleteResponse(error_code=ErrorCode.none, throttle_time=NO_TIME, topics=tuple(topics))
        )

    async def _topic(self, call: Call, group: str, topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
        """Raises the errors of the group."""
        numbers = tuple(each.partition_index for each in topic.partitions)
        code = ErrorCode.none
        try:
            request = DeleteOffsets(partitions=(TopicPartitions(topic.name, numbers),))
            await self._broker.groups.call(call.context, group, request)
        except GroupNotEmpty:
            code = ErrorCode.group_subscribed_to_topic
        partitions = (OffsetDeleteResponsePartition(partition_index=number, error_code=code) for number in numbers)
        return OffsetDeleteResponseTopic(name=topic.name, partitions=tuple(partitions))
