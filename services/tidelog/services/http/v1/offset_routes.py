"""``GET /v1/topics/{topic}/offsets``: resolves a position in many partitions, by one call to each leader for 1,000."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.broker.api.fetch import Anchor
from tidelog.services.consuming.partition_ends import look_up
from tidelog.services.http.answers.json_answer import json_answer
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.media import Media, answer_media
from tidelog.services.http.service import Service
from tidelog.services.http.v1 import openapi_records
from tidelog.services.http.v1.parameters import chosen_partitions, flag, query_of, topic_of
from tidelog.services.http.v1.positions import required_position
from tidelog.wire.topics import ResolvedOffset, ResolvedOffsets

_QUERY = frozenset({"at", "partitions", "fresh"})


class OffsetRoutes:
    """The call that resolves a position in many partitions."""

    def __init__(self, service: Service) -> None:
        self._broker = service.broker

    def add_to(self, router: APIRouter) -> None:
        router.add_api_route("/v1/topics/{topic}/offsets", self.offsets, **openapi_records.OFFSETS)

    async def offsets(self, request: Request) -> Response:
        """Resolve a position to an offset in each partition of a topic. It costs one call to each leader for 1,000
        partitions."""
        query, context = query_of(request, _QUERY), context_of(request)
        answer_media(request, (Media.JSON,))
        position, fresh = required_position(query, "at"), flag(query, "fresh", default=True)
        topic = await self._broker.known_topic(context, topic_of(request))
        numbers = chosen_partitions(query, topic)
        if position.anchor is Anchor.OFFSET:  # as the call for one partition, it is not checked
            return json_answer(ResolvedOffsets(tuple(ResolvedOffset(each, position.value) for each in numbers)))
        wanted = [((topic.name, number), position) for number in numbers]
        found = await look_up(self._broker, context, wanted, fresh=fresh)
        offsets = (ResolvedOffset(number, found[topic.name, number].part.begin) for number in numbers)
        return json_answer(ResolvedOffsets(tuple(offsets)))
