"""DeleteGroups (42): removes groups without members, with their offsets."""

from __future__ import annotations

from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse
from kio.schema.errors import ErrorCode

from tidelog.services.kafka.apis.groups.group_codes import classic_code
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import TidelogError
from tidelog.wire.groups import DeleteGroup


class DeleteGroupsApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request: DeleteGroupsRequest = decode(call, DeleteGroupsRequest)
        results = [
            DeletableGroupResult(group_id=group, error_code=await self._delete(call, group))
            for group in request.groups_names
        ]
        return encode(call, DeleteGroupsResponse(throttle_time=NO_TIME, results=tuple(results)))

    async def _delete(self, call: Call, group: str) -> ErrorCode:
        try:
            await self._broker.groups.call(call.context, group, DeleteGroup())
        except TidelogError as error:
            return classic_code(error)
        return ErrorCode.none
