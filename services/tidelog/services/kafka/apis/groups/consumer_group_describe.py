"""ConsumerGroupDescribe (69): groups of KIP-848 and their members."""

from __future__ import annotations

from collections.abc import Sequence

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v1.response import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
)
from kio.schema.consumer_group_describe.v1.response import TopicPartitions as DescribedPartitions
from kio.schema.errors import ErrorCode

from tidelog.services.kafka.apis.groups.group_codes import consumer_code
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.apis.operations import GROUP_OPERATIONS, if_asked
from tidelog.services.kafka.apis.topic_lookup import TopicLookup
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import TidelogError
from tidelog.wire.groups import DescribeGroup, GroupDescription, GroupMemberDescription, TopicPartitions

_CONSUMER = "consumer"
_CONSUMER_MEMBER = 1
"""The type of a member of this protocol."""


class ConsumerGroupDescribeApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request: ConsumerGroupDescribeRequest = decode(call, ConsumerGroupDescribeRequest)
        operations = if_asked(GROUP_OPERATIONS, request.include_authorized_operations)
        lookup = TopicLookup(self._broker, call.context)
        groups = [await self._described(call, group, operations, lookup) for group in dict.fromkeys(request.group_ids)]
        return encode(call, ConsumerGroupDescribeResponse(throttle_time=NO_TIME, groups=tuple(groups)))

    async def _described(self, call: Call, group: str, operations: int, lookup: TopicLookup) -> DescribedGroup:
        try:
            found = await self._broker.groups.call(call.context, group, DescribeGroup())
        except TidelogError as error:
            return _refused(group, consumer_code(error), str(error), operations)
        if found.kind != _CONSUMER:
            return _refused(group, ErrorCode.group_id_not_found, f"{group} is not a consumer group", operations)
        members = [await _member(each, lookup) for each in found.members]
        return _answer(found, tuple(members), operations)


def _answer(found: GroupDescription, members: tuple[Member, ...], operations: int) -> DescribedGroup:
    return DescribedGroup(
        error_code=ErrorCode.none,
        group_id=found.group,
        group_state=found.state,
        group_epoch=found.epoch,
        assignment_epoch=found.epoch,
        assignor_name=found.assignor,
        members=members,
        authorized_operations=operations,
    )


async def _member(member: GroupMemberDescription, lookup: TopicLookup) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topics,
        subscribed_topic_regex=member.topic_pattern,
        assignment=await _assignment(member.assignment, lookup),
        target_assignment=await _assignment(member.target, lookup),
        member_type=_CONSUMER_MEMBER,
    )


async def _assignment(given: Sequence[TopicPartitions], lookup: TopicLookup) -> Assignment:
    found = await lookup.ids(given)
    return Assignment(
        topic_partitions=tuple(
            DescribedPartitions(topic_id=topic_id, topic_name=of.topic, partitions=of.partitions)
            for topic_id, of in found
        )
    )


def _refused(group: str, code: ErrorCode, message: str, operations: int) -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=group,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
        authorized_operations=operations,
    )
