"""OffsetCommit (8): stores the offsets of a group. Those of unknown partitions are refused, the others are stored."""

from __future__ import annotations

from collections.abc import Mapping

from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v9.request import OffsetCommitRequest, OffsetCommitRequestPartition
from kio.schema.offset_commit.v9.response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

from tidelog.services.kafka.apis.groups.group_codes import classic_code, consumer_code
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.apis.topic_lookup import TopicLookup
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import Invalid, NotFound, TidelogError
from tidelog.wire.groups import CommitOffsets, PartitionOffset

_MEMBER_EPOCHS_SINCE = 9


class OffsetCommitApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request: OffsetCommitRequest = decode(call, OffsetCommitRequest)
        try:
            known = await self._known(call, request)
        except TidelogError as error:
            return _answer(call, request, dict.fromkeys(_named(request), _code(call, error)))
        code = await self._commit(call, request, known)
        return _answer(call, request, dict.fromkeys(known, code))

    async def _known(self, call: Call, request: OffsetCommitRequest) -> dict[tuple[str, int], PartitionOffset]:
        """The offsets of partitions that exist. Raises `Unavailable`."""
        lookup = TopicLookup(self._broker, call.context)
        found = {}
        for topic in request.topics:
            try:
                count = (await lookup.by_name(topic.name)).partition_count
            except (NotFound, Invalid):
                continue
            for each in topic.partitions:
                if 0 <= each.partition_index < count and each.committed_offset >= 0:
                    found[topic.name, each.partition_index] = _offset(topic.name, each)
        return found

    async def _commit(
        self, call: Call, request: OffsetCommitRequest, known: dict[tuple[str, int], PartitionOffset]
    ) -> ErrorCode:
        commit = CommitOffsets(
            offsets=tuple(known.values()),
            member_id=request.member_id,
            member_epoch=request.generation_id_or_member_epoch,
            instance_id=request.group_instance_id,
        )
        if not known:
            return ErrorCode.none
        if not request.member_id and request.generation_id_or_member_epoch >= 0:
            return ErrorCode.unknown_member_id
        try:
            await self._broker.groups.call(call.context, request.group_id, commit)
        except TidelogError as error:
            return _code(call, error)
        return ErrorCode.none


def _named(request: OffsetCommitRequest) -> list[tuple[str, int]]:
    return [(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]


def _code(call: Call, error: TidelogError) -> ErrorCode:
    return consumer_code(error) if call.version >= _MEMBER_EPOCHS_SINCE else classic_code(error)


def _answer(call: Call, request: OffsetCommitRequest, codes: Mapping[tuple[str, int], ErrorCode]) -> Answer:
    """Partitions without a code do not exist."""

    def told(topic: str, partition: int) -> OffsetCommitResponsePartition:
        code = codes.get((topic, partition), ErrorCode.unknown_topic_or_partition)
        return OffsetCommitResponsePartition(partition_index=partition, error_code=code)

    topics = tuple(
        OffsetCommitResponseTopic(
            name=topic.name, partitions=tuple(told(topic.name, each.partition_index) for each in topic.partitions)
        )
        for topic in request.topics
    )
    return encode(call, OffsetCommitResponse(throttle_time=NO_TIME, topics=topics))


def _offset(topic: str, each: OffsetCommitRequestPartition) -> PartitionOffset:
    return PartitionOffset(
        topic=topic,
        partition=each.partition_index,
        offset=each.committed_offset,
        leader_epoch=each.committed_leader_epoch,
        metadata=each.committed_metadata or "",
    )
