"""JoinGroup (11): joins a classic group, and waits until all its members have joined."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.join_group.v9.request import JoinGroupRequest
from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember

from tidelog.services.kafka.apis.groups.group_codes import classic_code, milliseconds
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.apis.long_polls import stopping, until_drained
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import MemberIdRequired, TidelogError
from tidelog.wire.classic_groups import ClassicProtocol, JoinedGroup, JoinGroup

_REBALANCE_TIMEOUT_SINCE, _KNOWN_MEMBER_SINCE = 1, 4


class JoinGroupApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request: JoinGroupRequest = decode(call, JoinGroupRequest)
        try:
            waiting = self._broker.groups.call(call.context, request.group_id, _join(call, request))
            joined = await until_drained(self._service.draining, waiting)
            if joined is None:
                raise stopping()
        except MemberIdRequired as error:
            return encode(call, _refused(ErrorCode.member_id_required, error.member_id))
        except TidelogError as error:
            return encode(call, _refused(classic_code(error), request.member_id))
        return encode(call, _joined(joined))


def _join(call: Call, request: JoinGroupRequest) -> JoinGroup:
    has_rebalance_timeout = call.version >= _REBALANCE_TIMEOUT_SINCE
    session_ms = milliseconds(request.session_timeout)
    return JoinGroup(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        session_timeout_ms=max(0, session_ms),
        rebalance_timeout_ms=max(0, milliseconds(request.rebalance_timeout) if has_rebalance_timeout else session_ms),
        protocol_type=request.protocol_type,
        protocols=tuple(ClassicProtocol(each.name, bytes(each.metadata)) for each in request.protocols),
        known_member_required=call.version >= _KNOWN_MEMBER_SINCE,
        client_id=call.context.client_id,
        client_host=f"/{call.client_host}",
    )


def _joined(joined: JoinedGroup) -> JoinGroupResponse:
    members = (
        JoinGroupResponseMember(member_id=each.member_id, group_instance_id=each.instance_id, metadata=each.metadata)
        for each in joined.members
    )
    return JoinGroupResponse(
        throttle_time=NO_TIME,
        error_code=ErrorCode.none,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=tuple(members),
    )


def _refused(code: ErrorCode, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(
        throttle_time=NO_TIME,
        error_code=code,
        protocol_type=None,
        protocol_name=None,
        leader="",
        member_id=member_id,
        members=(),
    )
