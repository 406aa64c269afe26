"""``POST /v1/fetch``: reads many partitions with one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.broker.api.fetch import FetchedPart, FetchLimits, FetchPart
from tidelog.services.http.answers.part_answer import FETCH_PART_MEDIA, part_answer, part_state
from tidelog.services.http.bodies.call_body import read_call
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.listener.waiting_requests import Draining
from tidelog.services.http.media import Media, answer_media
from tidelog.services.http.service import Service
from tidelog.services.http.v1 import openapi_records
from tidelog.services.http.v1.fetch_routes import JSON_BYTES_DEFAULT, JSON_RECORDS_DEFAULT, wants_base64
from tidelog.services.http.v1.parameters import OFFSET_MAX, query_of
from tidelog.services.http.v1.positions import parse_position
from tidelog.storage.errors import Invalid
from tidelog.wire.polls import PartRequest, PartsAnswer, PartsRequest

PARTS_MAX = 10_000
"""Partitions of one request."""
_QUERY = frozenset({"encoding"})
_REQUEST = msgspec.json.Decoder(PartsRequest)


class PartRoutes:
    """The call that reads many partitions."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._broker = service.broker

    def add_to(self, router: APIRouter) -> None:
        router.add_api_route("/v1/fetch", self.fetch, **openapi_records.FETCH_PARTS)

    async def fetch(self, request: Request) -> Response:
        """Read records of many partitions. Accept selects JSON, JSON lines or Arrow, or archived
        records as they are stored. The wait ends when any partition
        has records. Partitions are read in the order of the request until a limit is reached, so change their order
        from call to call."""
        base64 = wants_base64(query_of(request, _QUERY))
        media = answer_media(request, FETCH_PART_MEDIA)
        asked = await read_call(self._service.bodies, request, _REQUEST)
        limits = part_limits(self._service, media, asked.max_records, asked.max_bytes, asked.wait_ms)
        parts_max = None if context_of(request).from_peer else PARTS_MAX
        parts = _fetch_parts(asked.partitions, limits, parts_max)
        fetched = await self._fetch(request, parts, replace(limits, fresh=asked.fresh, stored=media is Media.STORED))
        return await part_answer(request, fetched, PartsAnswer(tuple(map(part_state, fetched))), media, base64=base64)

    async def _fetch(self, request: Request, parts: Sequence[FetchPart], limits: FetchLimits) -> Sequence[FetchedPart]:
        context = context_of(request)
        if limits.wait_ms:
            try:
                waiting = self._broker.fetch_parts(context, parts, limits)
                return await self._service.waiting.hold(request.receive, waiting)
            except Draining:
                pass  # the broker is stopping: the records that are there now are a complete answer
        return await self._broker.fetch_parts(context, parts, replace(limits, wait_ms=0))


def part_limits(
    service: Service, media: Media, max_records: int | None, max_bytes: int | None, wait_ms: int
) -> FetchLimits:
    """The limits that a client asks for, or the defaults of `media`, within those of the broker. A fetch without
    records does not wait for any."""
    settings, arrow = service.settings, media in (Media.ARROW, Media.STORED)
    records_default = settings.fetch_max_records if arrow else JSON_RECORDS_DEFAULT
    bytes_default = settings.fetch_max_bytes if arrow else JSON_BYTES_DEFAULT
    return FetchLimits(
        min(records_default if max_records is None else max_records, settings.fetch_max_records),
        min(bytes_default if max_bytes is None else max_bytes, settings.fetch_max_bytes),
        0 if max_records == 0 else min(wait_ms, settings.fetch_max_wait_ms),
    )


def _fetch_parts(asked: Sequence[PartRequest], limits: FetchLimits, parts_max: int | None) -> Sequence[FetchPart]:
    """Raises `Invalid`, `Unreadable`. `parts_max`: None for a peer, which asks for what its own client may ask for."""
    if not asked or (parts_max is not None and len(asked) > parts_max):
        raise Invalid(f"name 1 to {PARTS_MAX} partitions, not {len(asked)}", field="partitions")
    places = {(part.topic, part.partition): number for number, part in enumerate(asked)}
    if len(places) < len(asked):
        twice = next(part for number, part in enumerate(asked) if places[part.topic, part.partition] != number)
        raise Invalid(f"partition {twice.partition} of {twice.topic} occurs twice: name it once", field="partitions")
    return [_fetch_part(number, part, limits) for number, part in enumerate(asked)]


def _fetch_part(number: int, part: PartRequest, limits: FetchLimits) -> FetchPart:
    name = f"partitions[{number}].offset"
    if isinstance(part.offset, int) and part.offset > OFFSET_MAX:
        raise Invalid(f"{name} must be at most {OFFSET_MAX}", field=name)
    offset = part.offset if isinstance(part.offset, int) else parse_position(part.offset, name)
    return FetchPart(part.topic, part.partition, offset, limits.max_bytes if part.max_bytes is None else part.max_bytes)
