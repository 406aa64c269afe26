"""``/v1/staging/{sink}``: objects that a sink stages before their records are appended, for programs that cannot write
to the bucket themselves. A produce names them afterwards (`bodies.staged_body`)."""

from __future__ import annotations

import re

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.broker.api.staging import StagedRef
from tidelog.services.http.answers.json_answer import json_answer
from tidelog.services.http.bodies.staged_body import checked_ref, checked_sink
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.media import Media, answer_media, body_media
from tidelog.services.http.service import Service
from tidelog.services.http.v1 import openapi_records
from tidelog.services.http.v1.parameters import NO_QUERY, query_of, whole_number
from tidelog.wire.errors import Unreadable
from tidelog.wire.staging import BATCH_MAX, PLACE, DeletedObjects, staged_path

_PLACE = re.compile(PLACE)
_ADVICE = "stage smaller objects, or raise request.max.bytes"


class StagingRoutes:
    """The calls on staged objects."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._staging = service.broker.staging

    def add_to(self, router: APIRouter) -> None:
        one, every = "/v1/staging/{sink}/{batch}/{name}", "/v1/staging/{sink}"
        router.add_api_route(one, self.create, **openapi_records.STAGE)
        router.add_api_route(one, self.read, **openapi_records.STAGED)
        router.add_api_route(every, self.list_all, **openapi_records.STAGED_PAGE)
        router.add_api_route(every, self.delete, **openapi_records.DELETE_STAGED)

    async def create(self, request: Request) -> Response:
        """Stage an object of a sink. 409 if there is one of that name."""
        query_of(request, NO_QUERY)
        ref = _ref(request)
        body_media(request, (Media.BYTES,))
        bodies = self._service.bodies
        with bodies.in_flight(advice=_ADVICE) as held:
            await self._staging.create(context_of(request), ref, await bodies.read(request, held))
        return Response(status_code=201)

    async def read(self, request: Request) -> Response:
        """A staged object."""
        query_of(request, NO_QUERY)
        ref = _ref(request)
        answer_media(request, (Media.BYTES,))
        return Response(await self._staging.read(context_of(request), ref), media_type=Media.BYTES.value)

    async def list_all(self, request: Request) -> Response:
        """List the staged objects of a sink by batch and name, in pages."""
        sink, after = _sink(request), _place(request, "after")
        answer_media(request, (Media.JSON,))
        return json_answer(await self._staging.page(context_of(request), sink, after))

    async def delete(self, request: Request) -> Response:
        """Delete the staged objects of a sink, or those before a place. Safe to repeat."""
        sink, before = _sink(request), _place(request, "before")
        answer_media(request, (Media.JSON,))
        return json_answer(DeletedObjects(await self._staging.delete(context_of(request), sink, before)))


def _sink(request: Request) -> str:
    return checked_sink(request.path_params["sink"])


def _ref(request: Request) -> StagedRef:
    parameters = request.path_params
    batch = whole_number(parameters["batch"], "batch", 0, BATCH_MAX)
    return checked_ref(parameters["sink"], batch, parameters["name"])


def _place(request: Request, name: str) -> str:
    """Raises `Unreadable`."""
    query = query_of(request, frozenset({name}))
    place = query.get(name, "")
    if query and not _PLACE.fullmatch(place):
        raise Unreadable(f"{name} is a place such as {staged_path(7, 'committed')}, not {place[:80]!r}", field=name)
    return place
