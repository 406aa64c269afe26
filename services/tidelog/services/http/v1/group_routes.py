"""``/v1/groups``: lists and describes groups, and carries the requests of members to their coordinators."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.consuming.lag import Lags
from tidelog.services.consuming.seek import SeekOrder, Seeks, Target, relative_target
from tidelog.services.http.answers.json_answer import json_answer
from tidelog.services.http.bodies.call_body import read_call
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.media import Media, answer_media
from tidelog.services.http.service import Service
from tidelog.services.http.v1 import openapi_groups
from tidelog.services.http.v1.parameters import NO_QUERY, capped_number, flag, query_of
from tidelog.services.http.v1.positions import parse_position
from tidelog.wire.errors import Unreadable
from tidelog.wire.groups import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    GroupRequest,
    Heartbeat,
)
from tidelog.wire.polls import SeekRequest

T = TypeVar("T")

LIMIT_MAX = 1_000
_LIST_QUERY = frozenset({"limit", "after"})
_HEARTBEAT = msgspec.json.Decoder(Heartbeat)
_COMMIT = msgspec.json.Decoder(CommitOffsets)
_OFFSETS = msgspec.json.Decoder(FetchOffsets)
_DELETE_OFFSETS = msgspec.json.Decoder(DeleteOffsets)
_SEEK = msgspec.json.Decoder(SeekRequest)


class GroupRoutes:
    """The calls on groups, except polls."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._groups = service.broker.groups
        self._seeks = Seeks(service.broker, service.runtime.clock)
        self._lags = Lags(service.broker, service.runtime.clock)

    def add_to(self, router: APIRouter) -> None:
        one = "/v1/groups/{group}"
        router.add_api_route("/v1/groups", self.list_all, **openapi_groups.LIST)
        router.add_api_route(one, self.describe, **openapi_groups.DESCRIBE)
        router.add_api_route(one, self.delete, **openapi_groups.DELETE)
        router.add_api_route(f"{one}/heartbeat", self.heartbeat, **openapi_groups.HEARTBEAT)
        router.add_api_route(f"{one}/commit", self.commit, **openapi_groups.COMMIT)
        router.add_api_route(f"{one}/offsets", self.offsets, **openapi_groups.OFFSETS)
        router.add_api_route(f"{one}/delete-offsets", self.delete_offsets, **openapi_groups.DELETE_OFFSETS)
        router.add_api_route(f"{one}/seek", self.seek, **openapi_groups.SEEK)
        router.add_api_route(f"{one}/lag", self.lag, **openapi_groups.LAG)

    async def list_all(self, request: Request) -> Response:
        """List the groups by name, in pages."""
        query = query_of(request, _LIST_QUERY)
        answer_media(request, (Media.JSON,))
        limit = capped_number(query, "limit", 1, LIMIT_MAX, LIMIT_MAX)
        return json_answer(await self._groups.groups(context_of(request), after=query.get("after", ""), limit=limit))

    async def describe(self, request: Request) -> Response:
        """Describe a group and its members."""
        query_of(request, NO_QUERY)
        answer_media(request, (Media.JSON,))
        return await self._answer(request, DescribeGroup())

    async def delete(self, request: Request) -> Response:
        """Delete a group that has no members, with its offsets."""
        query_of(request, NO_QUERY)
        await self._groups.call(context_of(request), group_of(request), DeleteGroup())
        return Response(status_code=204)

    async def heartbeat(self, request: Request) -> Response:
        """Join a group, stay in it, or leave it. For clients that fetch and commit themselves; `poll` sends heartbeats
        by itself."""
        given = await self._body(request, _HEARTBEAT)
        return await self._answer(request, with_client(request, given))

    async def commit(self, request: Request) -> Response:
        """Commit offsets: all or none."""
        given = await self._body(request, _COMMIT)
        return await self._answer(request, given)

    async def offsets(self, request: Request) -> Response:
        """Read committed offsets."""
        given = await self._body(request, _OFFSETS)
        return await self._answer(request, given)

    async def delete_offsets(self, request: Request) -> Response:
        """Forget committed offsets of topics that no member subscribes to."""
        given = await self._body(request, _DELETE_OFFSETS)
        return await self._answer(request, given)

    async def seek(self, request: Request) -> Response:
        """Set the committed offsets of a group that has no members, or preview that (`dry_run`)."""
        given = await self._body(request, _SEEK)
        order = SeekOrder(_target(given.to), given.topics, given.partitions, given.dry_run)
        return json_answer(await self._seeks.seek(context_of(request), group_of(request), order))

    async def lag(self, request: Request) -> Response:
        """How far a group is behind, by partition: in records, and in time."""
        query = query_of(request, frozenset({"times"}))
        answer_media(request, (Media.JSON,))
        times = flag(query, "times", default=True)
        return json_answer(await self._lags.lag(context_of(request), group_of(request), times=times))

    async def _body(self, request: Request, decoder: msgspec.json.Decoder[T]) -> T:
        query_of(request, NO_QUERY)
        answer_media(request, (Media.JSON,))
        return await read_call(self._service.bodies, request, decoder)

    async def _answer(self, request: Request, call: GroupRequest[Any]) -> Response:
        return json_answer(await self._groups.call(context_of(request), group_of(request), call))


def group_of(request: Request) -> str:
    name: str = request.path_params["group"]
    return name


def with_client(request: Request, heartbeat: Heartbeat) -> Heartbeat:
    """`heartbeat` with the client as this broker sees it."""
    client_id = context_of(request).client_id or heartbeat.client_id
    host = request.client.host if request.client else ""
    return msgspec.structs.replace(heartbeat, client_id=client_id, client_host=host)


def _target(text: str) -> Target:
    """Parse where to seek to. Raises `Unreadable`."""
    relative = relative_target(text)
    if relative is not None:
        return relative
    try:
        return parse_position(text, "to")
    except Unreadable as error:
        raise Unreadable(
            "to must be earliest, latest, @time, a time ago (-1h), +N or -N records from the committed offset, or an "
            f"offset: {error}",
            field="to",
        ) from None
