"""ListGroups (16): the groups that this broker coordinates. A client asks every broker."""

from __future__ import annotations

from collections.abc import AsyncIterator

from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_groups.v5.response import ListedGroup as Listed
from kio.schema.list_groups.v5.response import ListGroupsResponse

from tidelog.services.kafka.apis.groups.group_codes import classic_code
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import NotFound, TidelogError
from tidelog.wire.groups import DescribeGroup, GroupDescription

_CLASSIC, _CONSUMER = "classic", "consumer"


class ListGroupsApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request: ListGroupsRequest = decode(call, ListGroupsRequest)
        try:
            groups = [_listed(each) async for each in self._descriptions(call)]
        except TidelogError as error:
            return encode(call, ListGroupsResponse(throttle_time=NO_TIME, error_code=classic_code(error), groups=()))
        wanted = tuple(each for each in groups if _is_wanted(each, request))
        return encode(call, ListGroupsResponse(throttle_time=NO_TIME, error_code=ErrorCode.none, groups=wanted))

    async def _descriptions(self, call: Call) -> AsyncIterator[GroupDescription]:
        groups, after = self._broker.groups, ""
        while True:
            page = await groups.groups(call.context, after=after)
            for each in page.groups:
                if groups.coordinator(call.context, each.group).local:
                    try:
                        yield await groups.call(call.context, each.group, DescribeGroup())
                    except NotFound:
                        continue  # deleted since
            if page.next is None:
                return
            after = page.next


def _listed(found: GroupDescription) -> Listed:
    is_consumer = found.kind == _CONSUMER
    return Listed(
        group_id=found.group,
        protocol_type=_CONSUMER if is_consumer else found.protocol_type,
        group_state=found.state,
        group_type=_CONSUMER if is_consumer else _CLASSIC,
    )


def _is_wanted(group: Listed, request: ListGroupsRequest) -> bool:
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    return (not states or group.group_state.lower() in states) and (not types or group.group_type in types)
