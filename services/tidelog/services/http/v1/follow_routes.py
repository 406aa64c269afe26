"""``GET /v1/topics/{topic}/records``: follows all partitions of a topic as events or JSON lines."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.broker.api.fetch import LATEST, Anchor, FetchLimits
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.consuming.partition_ends import look_up
from tidelog.services.http.answers.stream_answer import StreamAnswer
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.media import Media, answer_media
from tidelog.services.http.service import Service
from tidelog.services.http.v1 import openapi_records
from tidelog.services.http.v1.fetch_routes import HEARTBEAT_MS, JSON_RECORDS_DEFAULT, STREAM_PAGE_BYTES, wants_base64
from tidelog.services.http.v1.followed_events import FollowedEvents
from tidelog.services.http.v1.followed_lines import FollowedLines, LineOptions
from tidelog.services.http.v1.followed_topic import FollowedTopic
from tidelog.services.http.v1.parameters import chosen_partitions, flag, optional_number, query_of, topic_of
from tidelog.services.http.v1.positions import parse_position
from tidelog.services.http.v1.topic_position import POSITION_PARTITIONS_MAX, parse_position_text, position_headers
from tidelog.storage.errors import Invalid
from tidelog.wire.errors import Unreadable

_QUERY = frozenset({"offset", "wait_ms", "encoding", "positions", "partitions"})
_ONE_RECORD = FetchLimits(1, 1)
STARTS_AT_ONCE = 16
"""Partitions whose start is checked at the same time."""


class FollowRoutes:
    """The call that follows a topic."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._broker = service.broker

    def add_to(self, router: APIRouter) -> None:
        router.add_api_route("/v1/topics/{topic}/records", self.follow, **openapi_records.FOLLOW)

    async def follow(self, request: Request) -> Response:
        """Follow all partitions of a topic as server-sent events or JSON lines."""
        query, context, topic = query_of(request, _QUERY), context_of(request), topic_of(request)
        media = answer_media(request, (Media.EVENTS, Media.NDJSON))
        wait_ms = optional_number(query, "wait_ms", 0, self._service.settings.fetch_max_wait_ms)
        options = LineOptions(wants_base64(query), wait_ms is not None, flag(query, "positions", default=False))
        if media is Media.EVENTS:
            _check_event_options(options)
        chosen = chosen_partitions(query, self._broker.topic(context, topic))
        if options.positions or media is Media.EVENTS:
            _check_position_size(topic, len(chosen))
        offsets = await self._start(request, query, topic, chosen)
        page_bytes = min(STREAM_PAGE_BYTES, self._service.settings.fetch_max_bytes)
        limits = FetchLimits(JSON_RECORDS_DEFAULT, page_bytes, HEARTBEAT_MS if wait_ms is None else wait_ms)
        grows = "partitions" not in query
        followed = FollowedTopic(
            self._broker, context.without_deadline(), topic, offsets, limits, beat_s=HEARTBEAT_MS / 1000, grows=grows
        )
        if media is Media.EVENTS:
            return StreamAnswer(self._service.waiting, FollowedEvents(followed, base64=options.base64))
        return StreamAnswer(self._service.waiting, FollowedLines(followed, options), position_headers(offsets))

    async def _start(
        self, request: Request, query: Mapping[str, str], topic: str, chosen: Sequence[int]
    ) -> dict[int, int]:
        """The start of each partition. Offsets that the client sends are checked before the answer begins."""
        last_id, context = request.headers.get("last-event-id"), context_of(request)
        resumed = parse_position_text(last_id, "Last-Event-ID") if last_id else {}
        position = parse_position(query["offset"]) if "offset" in query else LATEST
        given = {number: resumed[number] for number in chosen if number in resumed}
        others = [number for number in chosen if number not in resumed]
        if position.anchor is Anchor.OFFSET:
            given |= dict.fromkeys(others, position.value)
            others = []
        found = await look_up(self._broker, context, [((topic, number), position) for number in others])
        await self._check(context, topic, given)
        begins = given | {number: answer.part.begin for (_, number), answer in found.items()}
        return {number: begins[number] for number in chosen}

    async def _check(self, context: RequestContext, topic: str, offsets: Mapping[int, int]) -> None:
        """Raises the error that a fetch from one of `offsets` raises."""
        numbers = sorted(offsets)
        for first in range(0, len(numbers), STARTS_AT_ONCE):
            some = numbers[first : first + STARTS_AT_ONCE]
            fetches = (self._broker.fetch(context, topic, number, offsets[number], _ONE_RECORD) for number in some)
            await asyncio.gather(*fetches)


def _check_event_options(options: LineOptions) -> None:
    """Raises `Unreadable` for options that only JSON lines have."""
    if options.bounded:
        raise Unreadable("wait_ms applies to application/x-ndjson only: an event stream has no end", field="wait_ms")
    if options.positions:
        raise Unreadable(
            "positions applies to application/x-ndjson only: the ids of events are positions", field="positions"
        )


def _check_position_size(topic: str, count: int) -> None:
    if count > POSITION_PARTITIONS_MAX:
        raise Invalid(
            f"{count} partitions of {topic} are too many for one position: follow at most {POSITION_PARTITIONS_MAX} "
            f"per stream, with ?partitions=0-{POSITION_PARTITIONS_MAX - 1}",
            field="partitions",
        )
