"""The calls of other brokers on the groups that this broker coordinates. No client can use them.

The body is any request of `wire.groups` as MessagePack, and so is the answer. The name of the group is in the path, in
hexadecimal digits.
"""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.listener.waiting_requests import Draining
from tidelog.services.http.service import Service
from tidelog.storage.errors import Invalid, LeaderUnknown
from tidelog.storage.object_store import Body
from tidelog.wire.errors import PeerUnproved, Unreadable
from tidelog.wire.group_calls import AnyGroupRequest, waits
from tidelog.wire.groups import GroupRequest
from tidelog.wire.paths import GROUP_CALLS

MSGPACK = "application/vnd.msgpack"
_RETRY_AFTER_S = 0.1
_REQUEST: msgspec.msgpack.Decoder[AnyGroupRequest] = msgspec.msgpack.Decoder(AnyGroupRequest)


class GroupCallRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service

    def add_to(self, router: APIRouter) -> None:
        router.add_api_route(GROUP_CALLS, self.call, methods=["POST"], include_in_schema=False)

    async def call(self, request: Request) -> Response:
        """Let the coordinator here carry out a request to a group."""
        context = context_of(request)
        if not context.from_peer:
            raise PeerUnproved("only brokers of this cluster may make this call: use /v1/groups")
        group = _group_of(request.path_params["group"])
        asked = await self._asked(request)
        answering = self._service.broker.groups.call(context, group, asked)
        try:
            answer = await (self._service.waiting.hold(request.receive, answering) if waits(asked) else answering)
        except Draining:
            text = "this broker is stopping, and another one coordinates the group soon. Retry"
            raise LeaderUnknown(text, retry_after_s=_RETRY_AFTER_S) from None
        return Response(msgspec.msgpack.encode(answer), media_type=MSGPACK)

    async def _asked(self, request: Request) -> GroupRequest[Any]:
        with self._service.bodies.in_flight() as held:
            return _decoded(await self._service.bodies.read(request, held))


def _decoded(body: Body) -> GroupRequest[Any]:
    try:
        decoded: GroupRequest[Any] = _REQUEST.decode(body)
    except msgspec.MsgspecError as error:
        raise Unreadable(f"the body is no request to a group: {error}", field="body") from error
    return decoded


def _group_of(name: str) -> str:
    try:
        return bytes.fromhex(name).decode()
    except ValueError as error:
        raise Invalid("the path has no name of a group in hexadecimal digits", field="group") from error
