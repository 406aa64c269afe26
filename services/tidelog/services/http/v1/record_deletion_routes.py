"""``POST /v1/topics/{topic}/partitions/{p}/delete-records``: the log begins at an offset from now on."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.http.bodies.typed_json import parse_typed
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.media import Media, body_media
from tidelog.services.http.service import Service
from tidelog.services.http.v1 import openapi_admin
from tidelog.services.http.v1.parameters import OFFSET_MAX, partition_of, query_of, topic_of

_ENCODER = msgspec.json.Encoder()


class DeleteRecordsForm(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a delete-records. -1: all that is committed now."""

    before_offset: Annotated[int, msgspec.Meta(ge=-1, le=OFFSET_MAX)]


_FORM = msgspec.json.Decoder(DeleteRecordsForm)


class RecordDeletionRoutes:
    """The call that deletes records."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def add_to(self, router: APIRouter) -> None:
        path = "/v1/topics/{topic}/partitions/{partition}/delete-records"
        router.add_api_route(path, self.delete_records, **openapi_admin.DELETE_RECORDS)

    async def delete_records(self, request: Request) -> Response:
        """Delete the records of a partition below an offset."""
        query_of(request, frozenset())
        topic, partition = topic_of(request), partition_of(request)
        body_media(request, (Media.JSON,))
        with self._service.bodies.in_flight() as held:
            form = parse_typed(_FORM, await self._service.bodies.read(request, held))
        log_start_offset = await self._service.broker.delete_records(
            context_of(request), topic, partition, form.before_offset
        )
        return Response(_ENCODER.encode({"log_start_offset": log_start_offset}), media_type=Media.JSON.value)
