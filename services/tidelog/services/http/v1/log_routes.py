"""``GET /v1/topics/{topic}/log``: where the records of a topic are, for programs that read the bucket directly."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.http.answers.json_answer import json_answer
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.media import Media, answer_media
from tidelog.services.http.service import Service
from tidelog.services.http.v1 import openapi_records
from tidelog.services.http.v1.parameters import (
    OFFSET_MAX,
    SHARD_MAX,
    capped_number,
    flag,
    optional_number,
    parse_partitions,
    query_of,
    topic_of,
)
from tidelog.wire.topic_log import SPANS_MAX, TopicLogRequest

_QUERY = frozenset(TopicLogRequest.__struct_fields__)


class LogRoutes:
    """The call that describes a topic's log."""

    def __init__(self, service: Service) -> None:
        self._broker = service.broker

    def add_to(self, router: APIRouter) -> None:
        router.add_api_route("/v1/topics/{topic}/log", self.log, **openapi_records.LOG)

    async def log(self, request: Request) -> Response:
        """Where the records of a topic are: the archived segments, and the ends of its partitions. For programs that
        read the bucket directly."""
        asked = _log_request(request)
        answer_media(request, (Media.JSON,))
        return json_answer(await self._broker.topic_log(context_of(request), topic_of(request), asked))


def _log_request(request: Request) -> TopicLogRequest:
    """Raises `Unreadable`."""
    query = query_of(request, _QUERY)
    return TopicLogRequest(
        partitions=tuple(parse_partitions(query["partitions"])) if "partitions" in query else None,
        min_offset=optional_number(query, "min_offset", 0, OFFSET_MAX),
        max_offset=optional_number(query, "max_offset", 0, OFFSET_MAX),
        min_timestamp=optional_number(query, "min_timestamp", 0, OFFSET_MAX),
        max_timestamp=optional_number(query, "max_timestamp", 0, OFFSET_MAX),
        shard=optional_number(query, "shard", 0, SHARD_MAX),
        limit=capped_number(query, "limit", 1, SPANS_MAX, SPANS_MAX),
        fresh=flag(query, "fresh", default=True),
        after=query.get("after"),
    )
