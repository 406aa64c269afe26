"""SyncGroup (14): the leader of a classic group brings the assignment, and each member gets its part."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.sync_group.v5.request import SyncGroupRequest
from kio.schema.sync_group.v5.response import SyncGroupResponse

from tidelog.services.kafka.apis.groups.group_codes import classic_code
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.apis.long_polls import stopping, until_drained
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import TidelogError
from tidelog.wire.classic_groups import MemberAssignment, SyncGroup


class SyncGroupApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request: SyncGroupRequest = decode(call, SyncGroupRequest)
        try:
            waiting = self._broker.groups.call(call.context, request.group_id, _sync(request))
            synced = await until_drained(self._service.draining, waiting)
            if synced is None:
                raise stopping()
        except TidelogError as error:
            return encode(call, _answer(classic_code(error), None, None, b""))
        return encode(call, _answer(ErrorCode.none, synced.protocol_type, synced.protocol, synced.assignment))


def _sync(request: SyncGroupRequest) -> SyncGroup:
    return SyncGroup(
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type or "",
        protocol=request.protocol_name or "",
        assignments=tuple(MemberAssignment(each.member_id, bytes(each.assignment)) for each in request.assignments),
    )


def _answer(code: ErrorCode, protocol_type: str | None, protocol: str | None, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        throttle_time=NO_TIME,
        error_code=code,
        protocol_type=protocol_type,
        protocol_name=protocol,
        assignment=assignment,
    )
