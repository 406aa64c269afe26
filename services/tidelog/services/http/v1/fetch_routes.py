"""``GET …/partitions/{p}/records``, ``…/log`` and ``…/offset``: reading one partition."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.broker.api.fetch import Anchor, Fetched, FetchLimits, Position
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.http.answers.arrow_answer import ArrowAnswer
from tidelog.services.http.answers.json_answer import JsonDocument, JsonLines, JsonText
from tidelog.services.http.answers.problems import Unreadable
from tidelog.services.http.answers.stream_answer import StreamAnswer
from tidelog.services.http.answers.text_answer import text_answer
from tidelog.services.http.forwarding.partition_calls import Place, Read
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.listener.connections import Draining
from tidelog.services.http.media import Media, answer_media
from tidelog.services.http.service import Service
from tidelog.services.http.v1 import openapi
from tidelog.services.http.v1.parameters import (
    OFFSET_MAX,
    capped_number,
    flag,
    partition_of,
    query_of,
    topic_of,
    whole_number,
)
from tidelog.services.http.v1.partition_events import PartitionEvents
from tidelog.services.http.v1.partition_log_json import partition_log_json
from tidelog.services.http.v1.positions import EARLIEST, parse_position

if TYPE_CHECKING:
    from tidelog.services.http.forwarding.forwarding import Forwarding

FETCH_MEDIA = (Media.JSON, Media.NDJSON, Media.ARROW, Media.EVENTS)
JSON_RECORDS_DEFAULT = 10_000
JSON_BYTES_DEFAULT = 1 << 20
STREAM_PAGE_BYTES = 1 << 18
HEARTBEAT_MS = 15_000
"""A stream is not silent for longer; the shipped load balancer cuts one that is silent for 75 s."""
_QUERY = frozenset({"offset", "max_records", "max_bytes", "wait_ms", "encoding", "fresh"})
_ENCODER = msgspec.json.Encoder()

Look = Callable[[RequestContext, Place], Awaitable[Response]]
"""Reads something of a partition and answers."""


@dataclass(frozen=True)
class _Wanted:
    """A fetch, read from its request."""

    place: Place
    position: Position
    limits: FetchLimits
    media: Media
    base64: bool


class FetchRoutes:
    """The calls that read one partition."""

    def __init__(self, service: Service, forwarding: Forwarding | None) -> None:
        self._service = service
        self._broker = service.broker
        self._forwarding = forwarding

    def add_to(self, router: APIRouter) -> None:
        under = "/v1/topics/{topic}/partitions/{partition}"
        router.add_api_route(f"{under}/records", self.fetch, **openapi.FETCH)
        router.add_api_route(f"{under}/log", self.log, **openapi.LOG)
        router.add_api_route(f"{under}/offset", self.offset, **openapi.OFFSET)

    async def fetch(self, request: Request) -> Response:
        """Read records of a partition."""
        query = query_of(request, _QUERY)
        place = _place(request)
        media = answer_media(request, FETCH_MEDIA)
        base64 = wants_base64(query)
        limits = self._limits(query, media)
        wanted = _Wanted(place, _position(request, query, media), limits, media, base64)
        if self._forwarding is None:
            return await self._fetched(request, wanted)
        numbered = wanted.position.anchor is Anchor.OFFSET
        read = Read(
            place,
            "records",
            query,
            offset=wanted.position.value if numbered else None,
            wait_ms=limits.wait_ms,
            stream=media is Media.EVENTS,
        )
        return await self._forwarding.read(request, read, lambda wait_ms: self._fetched(request, wanted, wait_ms))

    async def _fetched(self, request: Request, wanted: _Wanted, wait_ms: int | None = None) -> Response:
        """The answer given here. `wait_ms`: what is left of the wait that was asked for."""
        context, place, limits = context_of(request), wanted.place, wanted.limits
        if wait_ms is not None:
            limits = replace(limits, wait_ms=wait_ms)
        offset = wanted.position.value
        if wanted.position.anchor is not Anchor.OFFSET:
            offset = await self._broker.resolve(
                context, place.topic, place.partition, wanted.position, fresh=limits.fresh
            )
        fetched = await self._fetch(request, place, offset, limits)
        if wanted.media is Media.EVENTS:
            page_bytes = min(STREAM_PAGE_BYTES, self._service.settings.fetch_max_bytes)
            page = FetchLimits(JSON_RECORDS_DEFAULT, page_bytes, HEARTBEAT_MS)
            events = PartitionEvents(self._broker, context, place, fetched, page, base64=wanted.base64)
            return StreamAnswer(self._service.connections, events)
        if wanted.media is Media.ARROW:
            return ArrowAnswer(fetched.batches, _headers(fetched), wanted.media.value)
        text: JsonText = JsonLines(base64=wanted.base64)
        if wanted.media is Media.JSON:
            text = JsonDocument(place.topic, place.partition, fetched, base64=wanted.base64)
        return await text_answer(fetched.batches, text, _headers(fetched), wanted.media.value)

    def _limits(self, query: Mapping[str, str], media: Media) -> FetchLimits:
        settings = self._service.settings
        arrow = media is Media.ARROW
        records_max, bytes_max = settings.fetch_max_records, settings.fetch_max_bytes
        default_records = records_max if arrow else JSON_RECORDS_DEFAULT
        default_bytes = bytes_max if arrow else JSON_BYTES_DEFAULT
        return FetchLimits(
            capped_number(query, "max_records", 1, default_records, records_max),
            capped_number(query, "max_bytes", 1, default_bytes, bytes_max),
            0 if media is Media.EVENTS else capped_number(query, "wait_ms", 0, 0, settings.fetch_max_wait_ms),
            fresh=flag(query, "fresh", default=True),
        )

    async def _fetch(self, request: Request, place: Place, offset: int, limits: FetchLimits) -> Fetched:
        """What is there at once; only with nothing there, and a wait asked for, does the request hold its place."""
        context, at_once = context_of(request), replace(limits, wait_ms=0)
        fetched = await self._broker.fetch(context, place.topic, place.partition, offset, at_once)
        if fetched.next_offset > offset or not limits.wait_ms:
            return fetched
        waiting = self._broker.fetch(context, place.topic, place.partition, offset, limits)
        try:
            return await self._service.connections.hold(request.receive, waiting)
        except Draining:
            return fetched

    async def log(self, request: Request) -> Response:
        """What a direct reader of the bucket needs."""
        query = query_of(request, frozenset({"fresh"}))
        fresh = flag(query, "fresh", default=True)

        async def look(context: RequestContext, place: Place) -> Response:
            log = await self._broker.partition_log(context, place.topic, place.partition, fresh=fresh)
            return Response(_ENCODER.encode(partition_log_json(log)), media_type=Media.JSON.value)

        return await self._answer(request, Read(_place(request), "log", query), look)

    async def offset(self, request: Request) -> Response:
        """Resolve a position."""
        query = query_of(request, frozenset({"at", "fresh"}))
        if "at" not in query:
            raise Unreadable("at is missing: say ?at=earliest, latest, N, -N or @time", field="at")
        position = parse_position(query["at"], "at")
        fresh = flag(query, "fresh", default=True)

        async def resolve(context: RequestContext, place: Place) -> Response:
            offset = await self._broker.resolve(context, place.topic, place.partition, position, fresh=fresh)
            return Response(_ENCODER.encode({"offset": offset}), media_type=Media.JSON.value)

        return await self._answer(request, Read(_place(request), "offset", query), resolve)

    async def _answer(self, request: Request, read: Read, look: Look) -> Response:
        context = context_of(request)
        if self._forwarding is None:
            return await look(context, read.place)
        return await self._forwarding.read(request, read, lambda _: look(context, read.place))


def _place(request: Request) -> Place:
    return Place(topic_of(request), partition_of(request))


def _position(request: Request, query: Mapping[str, str], media: Media) -> Position:
    last_id = request.headers.get("last-event-id") if media is Media.EVENTS else None
    if last_id:
        return Position(Anchor.OFFSET, whole_number(last_id, "Last-Event-ID", 0, OFFSET_MAX - 1) + 1)
    return parse_position(query["offset"]) if "offset" in query else EARLIEST


def wants_base64(query: Mapping[str, str]) -> bool:
    encoding = query.get("encoding")
    if encoding not in (None, "base64"):
        raise Unreadable(f"encoding is base64 or left out, not {encoding[:80]!r}", field="encoding")
    return encoding == "base64"


def _headers(fetched: Fetched) -> dict[str, str]:
    return {
        "Tidelog-Next-Offset": str(fetched.next_offset),
        "Tidelog-High-Watermark": str(fetched.high_watermark),
        "Tidelog-Log-Start-Offset": str(fetched.log_start_offset),
    }
