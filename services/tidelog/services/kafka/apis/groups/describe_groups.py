"""DescribeGroups (15): classic groups and their members. A group that does not exist is Dead, as in Kafka; from
version 6 on with GROUP_ID_NOT_FOUND (KIP-1043)."""

from __future__ import annotations

from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.describe_groups.v6.response import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from kio.schema.errors import ErrorCode

from tidelog.services.kafka.apis.groups.group_codes import classic_code
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.apis.operations import GROUP_OPERATIONS, NOT_ASKED, if_asked
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import NotFound, TidelogError
from tidelog.wire.groups import DescribeGroup, GroupDescription, GroupMemberDescription

_DEAD = "Dead"
_CONSUMER = "consumer"
_NOT_FOUND_SINCE = 6


class DescribeGroupsApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request: DescribeGroupsRequest = decode(call, DescribeGroupsRequest)
        operations = if_asked(GROUP_OPERATIONS, request.include_authorized_operations)
        groups = [await self._described(call, group, operations) for group in dict.fromkeys(request.groups)]
        return encode(call, DescribeGroupsResponse(throttle_time=NO_TIME, groups=tuple(groups)))

    async def _described(self, call: Call, group: str, operations: int) -> DescribedGroup:
        try:
            found = await self._broker.groups.call(call.context, group, DescribeGroup())
        except NotFound as error:
            return _dead(call, group, str(error), operations)
        except TidelogError as error:
            return _without_members(group, classic_code(error), str(error), "", operations)
        if found.kind == _CONSUMER:
            return _dead(call, group, f"the group {group} is not of the kind classic", operations)
        return _answer(found, operations)


def _dead(call: Call, group: str, message: str, operations: int) -> DescribedGroup:
    if call.version >= _NOT_FOUND_SINCE:
        return _without_members(group, ErrorCode.group_id_not_found, message, _DEAD, NOT_ASKED)
    return _without_members(group, ErrorCode.none, message, _DEAD, operations)


def _answer(found: GroupDescription, operations: int) -> DescribedGroup:
    return DescribedGroup(
        error_code=ErrorCode.none,
        group_id=found.group,
        group_state=found.state,
        protocol_type=found.protocol_type,
        protocol_data=found.assignor,
        members=tuple(map(_member, found.members)),
        authorized_operations=operations,
    )


def _member(member: GroupMemberDescription) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata,
        member_assignment=member.assigned,
    )


def _without_members(group: str, code: ErrorCode, message: str, state: str, operations: int) -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=group,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=(),
        authorized_operations=operations,
    )
