"""Reads the JSON body of a call that has no query."""

from __future__ import annotations

from starlette.requests import Request

from tidelog.services.http.media import Media, body_media
from tidelog.services.http.service import Service
from tidelog.services.http.v1.parameters import NO_QUERY, query_of
from tidelog.storage.object_store import Body


async def json_body(service: Service, request: Request) -> Body:
    """The body of `request`. Raises `Invalid` for a query, `UnsupportedMedia`, and the errors of `BodyReader.read`."""
    query_of(request, NO_QUERY)
    body_media(request, (Media.JSON,))
    with service.bodies.in_flight() as held:
        return await service.bodies.read(request, held)
