"""``GET /v1/topics/{topic}/records``: all partitions of a topic, followed as events or JSON lines."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.broker.api import Anchor, FetchLimits, Position
from tidelog.services.http import openapi
from tidelog.services.http.answers.event_answer import HEARTBEAT, encode_event
from tidelog.services.http.answers.json_answer import encode_ndjson
from tidelog.services.http.answers.record_json import records_json
from tidelog.services.http.answers.stream_answer import StreamAnswer
from tidelog.services.http.fetch_routes import HEARTBEAT_MS, JSON_RECORDS_DEFAULT, STREAM_PAGE_BYTES, wants_base64
from tidelog.services.http.followed_topic import FollowedTopic, Page
from tidelog.services.http.media import Media, answer_media
from tidelog.services.http.parameters import optional_number, query_of, topic_of
from tidelog.services.http.positions import LATEST, parse_position
from tidelog.services.http.problems import Unreadable
from tidelog.services.http.service import Service

_QUERY = frozenset({"offset", "wait_ms", "encoding"})
_EVENT_ID = re.compile(r"[0-9]{1,10}:[0-9]{1,18}(,[0-9]{1,10}:[0-9]{1,18})*")
_ONE_RECORD = FetchLimits(1, 1)


class FollowRoutes:
    """The call that follows a topic."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._broker = service.broker

    def add_to(self, router: APIRouter) -> None:
        router.add_api_route("/v1/topics/{topic}/records", self.follow, **openapi.FOLLOW)

    async def follow(self, request: Request) -> Response:
        """Follow all partitions."""
        query = query_of(request, _QUERY)
        topic = topic_of(request)
        media = answer_media(request, (Media.EVENTS, Media.NDJSON))
        wait_ms = optional_number(query, "wait_ms", 0, self._service.settings.fetch_max_wait_ms)
        if wait_ms is not None and media is Media.EVENTS:
            raise Unreadable("wait_ms bounds application/x-ndjson; an event stream has no end", field="wait_ms")
        base64 = wants_base64(query)
        offsets = await self._start(request, query, topic)
        page_bytes = min(STREAM_PAGE_BYTES, self._service.settings.fetch_max_bytes)
        limits = FetchLimits(JSON_RECORDS_DEFAULT, page_bytes, HEARTBEAT_MS if wait_ms is None else wait_ms)
        followed = FollowedTopic(self._broker, topic, offsets, limits)
        pieces = _events(followed, base64) if media is Media.EVENTS else _lines(followed, base64, wait_ms)
        return StreamAnswer(self._service.connections, media, pieces)

    async def _start(self, request: Request, query: Mapping[str, str], topic: str) -> dict[int, int]:
        """Where each partition begins. Offsets that the client names are checked before the answer begins."""
        last_id = request.headers.get("last-event-id")
        resumed = _parse_event_id(last_id) if last_id else {}
        position = parse_position(query["offset"]) if "offset" in query else LATEST
        offsets: dict[int, int] = {}
        for partition in range(self._broker.topic(topic).partition_count):
            at = Position(Anchor.OFFSET, resumed[partition]) if partition in resumed else position
            offsets[partition] = await self._broker.resolve(topic, partition, at)
            if at.anchor is Anchor.OFFSET:
                await self._broker.fetch(topic, partition, at.value, _ONE_RECORD)
        return offsets


def _parse_event_id(text: str) -> dict[int, int]:
    """``0:41,1:7`` as next offsets by partition."""
    if not _EVENT_ID.fullmatch(text):
        raise Unreadable(
            f"Last-Event-ID is partition:offset,… as the events carry it, not {text[:80]!r}", field="Last-Event-ID"
        )
    pairs = (pair.split(":") for pair in text.split(","))
    return {int(partition): int(offset) for partition, offset in pairs}


async def _events(followed: FollowedTopic, base64: bool) -> AsyncGenerator[bytes]:
    seen = dict(followed.offsets)
    async with aclosing(followed.pages()) as pages:
        async for page in pages:
            yield HEARTBEAT if page is None else _page_events(page, seen, base64)


def _page_events(page: Page, seen: dict[int, int], base64: bool) -> bytes:
    """The page's events; each id is where all partitions stand once it has been read."""
    events = []
    for record in records_json(page.batches, base64=base64, partition=page.partition):
        seen[page.partition] = record.offset + 1
        event_id = ",".join(f"{partition}:{offset}" for partition, offset in sorted(seen.items()))
        events.append(encode_event(event_id, record))
    return b"".join(events)


async def _lines(followed: FollowedTopic, base64: bool, wait_ms: int | None) -> AsyncGenerator[bytes]:
    async with aclosing(followed.pages()) as pages:
        async for page in pages:
            if page is not None:
                yield encode_ndjson(page.batches, base64=base64, partition=page.partition)
            elif wait_ms is not None:
                return
