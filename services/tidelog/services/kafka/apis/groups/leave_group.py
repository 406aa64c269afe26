"""LeaveGroup (13): takes members out of a classic group. Since version 3 a request names several of them."""

from __future__ import annotations

from collections.abc import Sequence

from kio.schema.errors import ErrorCode
from kio.schema.leave_group.v2.request import LeaveGroupRequest as OneMemberRequest
from kio.schema.leave_group.v5.request import LeaveGroupRequest
from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse

from tidelog.services.kafka.apis.groups.group_codes import classic_code
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import TidelogError
from tidelog.wire.classic_groups import LeaveGroup, LeavingMember

_MANY_SINCE = 3


class LeaveGroupApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        if call.version < _MANY_SINCE:
            one: OneMemberRequest = decode(call, OneMemberRequest)
            return encode(call, _answer(await self._leave(call, one.group_id, LeavingMember(one.member_id)), ()))
        request: LeaveGroupRequest = decode(call, LeaveGroupRequest)
        left = [
            MemberResponse(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                error_code=await self._leave(
                    call, request.group_id, LeavingMember(each.member_id, each.group_instance_id)
                ),
            )
            for each in request.members
        ]
        if any(each.error_code is ErrorCode.invalid_group_id for each in left):
            return encode(call, _answer(ErrorCode.invalid_group_id, ()))
        return encode(call, _answer(ErrorCode.none, left))

    async def _leave(self, call: Call, group: str, member: LeavingMember) -> ErrorCode:
        try:
            await self._broker.groups.call(call.context, group, LeaveGroup(members=(member,)))
        except TidelogError as error:
            return classic_code(error)
        return ErrorCode.none


def _answer(code: ErrorCode, members: Sequence[MemberResponse]) -> LeaveGroupResponse:
    return LeaveGroupResponse(throttle_time=NO_TIME, error_code=code, members=tuple(members))
