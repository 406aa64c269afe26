"""Heartbeat (12): keeps a member of a classic group, and tells it to join again."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse

from tidelog.services.kafka.apis.groups.group_codes import classic_code
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import TidelogError
from tidelog.wire.classic_groups import ClassicHeartbeat


class HeartbeatApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request: HeartbeatRequest = decode(call, HeartbeatRequest)
        heartbeat = ClassicHeartbeat(
            generation=request.generation_id, member_id=request.member_id, instance_id=request.group_instance_id
        )
        code = ErrorCode.none
        try:
            await self._broker.groups.call(call.context, request.group_id, heartbeat)
        except TidelogError as error:
            code = classic_code(error)
        return encode(call, HeartbeatResponse(throttle_time=NO_TIME, error_code=code))
