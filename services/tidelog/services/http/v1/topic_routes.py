"""``/v1/topics``: create, list, describe, alter and delete topics."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tidelog.coordinator.topics.topic import PARTITIONS_MAX, Topic
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.http.bodies.typed_json import parse_typed
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.media import Media, answer_media, body_media
from tidelog.services.http.service import Service
from tidelog.services.http.v1 import openapi_admin
from tidelog.services.http.v1.parameters import capped_number, flag, query_of, topic_of
from tidelog.services.http.v1.topic_list import (
    DETAILED_PARTITIONS_MAX,
    LIMIT_MAX,
    PARTITIONS_PER_PAGE_MAX,
    Look,
    PartitionJson,
    detailed,
    listed,
    partitions_of,
    topic_page,
)
from tidelog.storage.object_store import Body

_ENCODER = msgspec.json.Encoder()
_NO_QUERY: frozenset[str] = frozenset()
_LIST_QUERY = frozenset({"limit", "after", "detail"})

Partitions = Annotated[int, msgspec.Meta(ge=1, le=PARTITIONS_MAX)]
ConfigForm = dict[str, str | int | None]


class CreateForm(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a create."""

    name: str
    partitions: Partitions | None = None
    configs: ConfigForm = {}


class AlterForm(msgspec.Struct, forbid_unknown_fields=True):
    """The body of an alter; null puts a config's default back."""

    partitions: Partitions | None = None
    configs: ConfigForm = {}


class TopicJson(msgspec.Struct):
    """A topic as clients see it."""

    name: str
    topic_id: str
    partitions: list[PartitionJson]
    configs: dict[str, str]
    created_at_ms: int


_CREATE = msgspec.json.Decoder(CreateForm)
_ALTER = msgspec.json.Decoder(AlterForm)


class TopicRoutes:
    """The calls on topics."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._broker = service.broker

    def add_to(self, router: APIRouter) -> None:
        one, every = "/v1/topics/{topic}", "/v1/topics"
        router.add_api_route(every, self.create, **openapi_admin.CREATE)
        router.add_api_route(every, self.list_all, **openapi_admin.LIST)
        router.add_api_route(one, self.describe, **openapi_admin.DESCRIBE)
        router.add_api_route(one, self.alter, **openapi_admin.ALTER)
        router.add_api_route(one, self.delete, **openapi_admin.DELETE)

    async def create(self, request: Request) -> Response:
        """Create a topic."""
        form = parse_typed(_CREATE, await self._json_body(request))
        topic = await self._broker.create_topic(context_of(request), form.name, form.partitions, form.configs)
        return _topic_answer(
            topic, [PartitionJson(number, shard, 0, 0, 0) for number, shard in enumerate(topic.shards)], 201
        )

    async def list_all(self, request: Request) -> Response:
        """List the topics."""
        query, context = query_of(request, _LIST_QUERY), context_of(request)
        answer_media(request, (Media.JSON,))
        limit = capped_number(query, "limit", 1, LIMIT_MAX, LIMIT_MAX)
        detail = flag(query, "detail", default=False)
        partitions_max = DETAILED_PARTITIONS_MAX if detail else PARTITIONS_PER_PAGE_MAX
        page = topic_page(self._broker.topics(context), query.get("after", ""), limit, partitions_max)
        answer = await detailed(page, self._look_for(context)) if detail else listed(page)
        return Response(_ENCODER.encode(answer), media_type=Media.JSON.value)

    async def describe(self, request: Request) -> Response:
        """Describe a topic."""
        query_of(request, _NO_QUERY)
        answer_media(request, (Media.JSON,))
        context = context_of(request)
        return await self._answer(context, await self._broker.known_topic(context, topic_of(request)))

    async def alter(self, request: Request) -> Response:
        """Alter a topic's configs, or add partitions."""
        form = parse_typed(_ALTER, await self._json_body(request))
        context = context_of(request)
        topic = await self._broker.alter_topic(context, topic_of(request), form.partitions, form.configs)
        return await self._answer(context, topic)

    async def delete(self, request: Request) -> Response:
        """Delete a topic and its records."""
        query_of(request, _NO_QUERY)
        await self._broker.delete_topic(context_of(request), topic_of(request))
        return Response(status_code=204)

    async def _json_body(self, request: Request) -> Body:
        query_of(request, _NO_QUERY)
        body_media(request, (Media.JSON,))
        with self._service.bodies.in_flight() as held:
            return await self._service.bodies.read(request, held)

    async def _answer(self, context: RequestContext, topic: Topic) -> Response:
        return _topic_answer(topic, await partitions_of(topic, self._look_for(context)), 200)

    def _look_for(self, context: RequestContext) -> Look:
        """How `context`'s request reads a partition's offsets. A partition that is not loaded yet costs a request to
        the store."""

        async def look(topic: str, number: int) -> PartitionJson:
            log = await self._broker.partition_log(context, topic, number, fresh=False)
            return PartitionJson(number, log.shard, log.log_start_offset, log.cold_end, log.high_watermark)

        return look


def _topic_json(topic: Topic, partitions: list[PartitionJson]) -> TopicJson:
    return TopicJson(topic.name, topic.topic_id, partitions, topic.config.as_kafka(), topic.created_at_ms)


def _topic_answer(topic: Topic, partitions: list[PartitionJson], status: int) -> Response:
    return Response(_ENCODER.encode(_topic_json(topic, partitions)), status, media_type=Media.JSON.value)
