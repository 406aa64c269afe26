"""``GET …/partitions/{p}/records`` and ``…/offset``: reads one partition."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.broker.api.fetch import EARLIEST, Anchor, Fetched, FetchLimits, Position
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.http.answers.arrow_answer import ARROW_CODECS, arrow_answer
from tidelog.services.http.answers.json_answer import json_answer
from tidelog.services.http.answers.record_json import JsonText, RecordDocument, RecordLines
from tidelog.services.http.answers.stream_answer import StreamAnswer
from tidelog.services.http.answers.text_answer import text_answer
from tidelog.services.http.forwarding.partition_calls import PartitionRef, Read
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.listener.waiting_requests import Draining
from tidelog.services.http.media import Media, answer_codec, answer_media
from tidelog.services.http.service import Service
from tidelog.services.http.v1 import openapi_records
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
from tidelog.services.http.v1.positions import parse_position, required_position
from tidelog.wire import headers
from tidelog.wire.errors import Unreadable
from tidelog.wire.topics import OffsetAnswer

if TYPE_CHECKING:
    from tidelog.services.http.forwarding.forwarding import Forwarding

FETCH_MEDIA = (Media.JSON, Media.NDJSON, Media.ARROW, Media.EVENTS)
JSON_RECORDS_DEFAULT = 10_000
JSON_BYTES_DEFAULT = 1 << 20
STREAM_PAGE_BYTES = 1 << 18
HEARTBEAT_MS = 15_000
"""The longest silence of a stream. The shipped load balancer cuts a stream after 75 s of silence."""
_QUERY = frozenset({"offset", "max_records", "max_bytes", "wait_ms", "encoding", "fresh"})

ReadPartition: TypeAlias = Callable[[RequestContext, PartitionRef], Awaitable[Response]]
"""Reads a partition and answers."""


@dataclass(frozen=True)
class _Fetch:
    """A fetch, as its request describes it."""

    ref: PartitionRef
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
        router.add_api_route(f"{under}/records", self.fetch, **openapi_records.FETCH)
        router.add_api_route(f"{under}/offset", self.offset, **openapi_records.OFFSET)

    async def fetch(self, request: Request) -> Response:
        """Read records of one partition. Accept selects JSON, JSON lines, Arrow or server-sent events."""
        query = query_of(request, _QUERY)
        ref = _ref(request)
        media = answer_media(request, FETCH_MEDIA)
        base64 = wants_base64(query)
        limits = self._limits(query, media)
        fetch = _Fetch(ref, _position(request, query, media), limits, media, base64)
        if self._forwarding is None:
            return await self._answer_here(request, fetch)
        numbered = fetch.position.anchor is Anchor.OFFSET
        read = Read(
            ref,
            "records",
            query,
            offset=fetch.position.value if numbered else None,
            wait_ms=limits.wait_ms,
            stream=media is Media.EVENTS,
        )
        return await self._forwarding.read(request, read, lambda wait_ms: self._answer_here(request, fetch, wait_ms))

    async def _answer_here(self, request: Request, fetch: _Fetch, wait_ms: int | None = None) -> Response:
        """The answer of this broker. `wait_ms`: the remaining time to wait for records, if some of it is over."""
        context, ref, limits = context_of(request), fetch.ref, fetch.limits
        if wait_ms is not None:
            limits = replace(limits, wait_ms=wait_ms)
        offset = fetch.position.value
        if fetch.position.anchor is not Anchor.OFFSET:
            offset = await self._broker.resolve(context, ref.topic, ref.partition, fetch.position, fresh=limits.fresh)
        fetched = await self._fetch(request, ref, offset, limits)
        if fetch.media is Media.EVENTS:
            page_bytes = min(STREAM_PAGE_BYTES, self._service.settings.fetch_max_bytes)
            page = FetchLimits(JSON_RECORDS_DEFAULT, page_bytes, HEARTBEAT_MS)
            events = PartitionEvents(self._broker, context, ref, fetched, page, base64=fetch.base64)
            return StreamAnswer(self._service.waiting, events)
        if fetch.media is Media.ARROW:
            codec = answer_codec(request, ARROW_CODECS)
            return await arrow_answer(fetched.batches, _headers(fetched), fetch.media.value, codec)
        text: JsonText = RecordLines(base64=fetch.base64)
        if fetch.media is Media.JSON:
            text = RecordDocument(ref.topic, ref.partition, fetched, base64=fetch.base64)
        return await text_answer(fetched.batches, text, _headers(fetched), fetch.media.value)

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

    async def _fetch(self, request: Request, ref: PartitionRef, offset: int, limits: FetchLimits) -> Fetched:
        """The records that are there. The request takes a place among the waiting ones only if there are none."""
        context, at_once = context_of(request), replace(limits, wait_ms=0)
        fetched = await self._broker.fetch(context, ref.topic, ref.partition, offset, at_once)
        if fetched.next_offset > offset or not limits.wait_ms:
            return fetched
        waiting = self._broker.fetch(context, ref.topic, ref.partition, offset, limits)
        try:
            return await self._service.waiting.hold(request.receive, waiting)
        except Draining:
            return fetched

    async def offset(self, request: Request) -> Response:
        """Resolve a position to an offset."""
        query = query_of(request, frozenset({"at", "fresh"}))
        position = required_position(query, "at")
        fresh = flag(query, "fresh", default=True)

        async def resolve(context: RequestContext, ref: PartitionRef) -> Response:
            offset = await self._broker.resolve(context, ref.topic, ref.partition, position, fresh=fresh)
            return json_answer(OffsetAnswer(offset))

        return await self._answer(request, Read(_ref(request), "offset", query), resolve)

    async def _answer(self, request: Request, read: Read, read_partition: ReadPartition) -> Response:
        context = context_of(request)
        if self._forwarding is None:
            return await read_partition(context, read.ref)
        return await self._forwarding.read(request, read, lambda _: read_partition(context, read.ref))


def _ref(request: Request) -> PartitionRef:
    return PartitionRef(topic_of(request), partition_of(request))


def _position(request: Request, query: Mapping[str, str], media: Media) -> Position:
    last_id = request.headers.get("last-event-id") if media is Media.EVENTS else None
    if last_id:
        return Position(Anchor.OFFSET, whole_number(last_id, "Last-Event-ID", 0, OFFSET_MAX - 1) + 1)
    return parse_position(query["offset"]) if "offset" in query else EARLIEST


def wants_base64(query: Mapping[str, str]) -> bool:
    encoding = query.get("encoding")
    if encoding not in (None, "base64"):
        raise Unreadable(f"encoding must be base64 or left out, not {encoding[:80]!r}", field="encoding")
    return encoding == "base64"


def _headers(fetched: Fetched) -> dict[str, str]:
    return {
        headers.NEXT_OFFSET: str(fetched.next_offset),
        headers.HIGH_WATERMARK: str(fetched.high_watermark),
        headers.LOG_START_OFFSET: str(fetched.log_start_offset),
    }
