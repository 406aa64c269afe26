"""OffsetForLeaderEpoch (23): where the records of a leader's epoch end, so that a consumer finds out what was lost."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.offset_for_leader_epoch.v4.request import OffsetForLeaderEpochRequest, OffsetForLeaderPartition
from kio.schema.offset_for_leader_epoch.v4.response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.apis.leader_epochs import NO_EPOCH, epoch_error, leader_epoch
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.error_codes import Family, error_code
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import TidelogError

_NO_OFFSET = -1


class OffsetForLeaderEpochApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request: OffsetForLeaderEpochRequest = decode(call, OffsetForLeaderEpochRequest)
        topics = [
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=tuple([await self._end(call, topic.topic, each) for each in topic.partitions]),
            )
            for topic in request.topics
        ]
        return encode(call, OffsetForLeaderEpochResponse(throttle_time=NO_TIME, topics=tuple(topics)))

    async def _end(self, call: Call, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
        current = leader_epoch(self._broker, call.context, topic, asked.partition)
        refusal = epoch_error(asked.current_leader_epoch, current)
        if refusal is not ErrorCode.none:
            return _answer(asked, refusal)
        context = call.context.not_forwarded()
        try:
            end = await self._broker.epoch_end(context, topic, asked.partition, asked.leader_epoch)
        except TidelogError as error:
            return _answer(asked, error_code(error, Family.READ))
        return _answer(asked, ErrorCode.none, end.epoch, end.end_offset)


def _answer(
    asked: OffsetForLeaderPartition, code: ErrorCode, epoch: int = NO_EPOCH, end_offset: int = _NO_OFFSET
) -> EpochEndOffset:
    return EpochEndOffset(error_code=code, partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
