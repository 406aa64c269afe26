"""``/v1/topics``: creates, lists, describes, alters and deletes topics, and deletes records of a partition."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.http.answers.json_answer import json_answer
from tidelog.services.http.bodies.typed_json import parse_typed
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.media import Media, answer_media
from tidelog.services.http.service import Service
from tidelog.services.http.v1 import openapi_admin, openapi_records
from tidelog.services.http.v1.json_bodies import json_body
from tidelog.services.http.v1.parameters import (
    NO_QUERY,
    capped_number,
    flag,
    partition_of,
    query_of,
    topic_of,
)
from tidelog.services.http.v1.request_forms import AlterForm, CreateForm, DeleteRecordsForm
from tidelog.services.http.v1.topic_list import (
    DETAILED_PARTITIONS_MAX,
    LIMIT_MAX,
    PARTITIONS_PER_PAGE_MAX,
    ReadOffsets,
    described_partitions,
    detailed,
    listed,
    topic_range,
)
from tidelog.wire.topics import LogStartAnswer, PartitionDescription, TopicDescription

_ENDS_ONLY = FetchLimits(0, 0, fresh=False)
_LIST_QUERY = frozenset({"limit", "after", "detail"})
_CREATE = msgspec.json.Decoder(CreateForm)
_ALTER = msgspec.json.Decoder(AlterForm)
_DELETE_RECORDS = msgspec.json.Decoder(DeleteRecordsForm)


class TopicRoutes:
    """The calls on topics."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._broker = service.broker

    def add_to(self, router: APIRouter) -> None:
        one, every = "/v1/topics/{topic}", "/v1/topics"
        records = "/v1/topics/{topic}/partitions/{partition}/delete-records"
        router.add_api_route(every, self.create, **openapi_admin.CREATE)
        router.add_api_route(every, self.list_all, **openapi_admin.LIST)
        router.add_api_route(one, self.describe, **openapi_admin.DESCRIBE)
        router.add_api_route(one, self.alter, **openapi_admin.ALTER)
        router.add_api_route(one, self.delete, **openapi_admin.DELETE)
        router.add_api_route(records, self.delete_records, **openapi_records.DELETE_RECORDS)

    async def create(self, request: Request) -> Response:
        """Create a topic. Names follow Kafka's rules; the configs have Kafka's names."""
        form = parse_typed(_CREATE, await json_body(self._service, request))
        topic = await self._broker.create_topic(context_of(request), form.name, form.partitions, form.configs)
        partitions = [PartitionDescription(number, shard, 0, 0, 0) for number, shard in enumerate(topic.shards)]
        return json_answer(_description(topic, partitions), 201)

    async def list_all(self, request: Request) -> Response:
        """List the topics by name, in pages, from memory. With `detail` the offsets of partitions are read, too."""
        query, context = query_of(request, _LIST_QUERY), context_of(request)
        answer_media(request, (Media.JSON,))
        limit = capped_number(query, "limit", 1, LIMIT_MAX, LIMIT_MAX)
        detail = flag(query, "detail", default=False)
        partitions_max = DETAILED_PARTITIONS_MAX if detail else PARTITIONS_PER_PAGE_MAX
        page = topic_range(self._broker.topics(context), query.get("after", ""), limit, partitions_max)
        return json_answer(await detailed(page, self._reader(context)) if detail else listed(page))

    async def describe(self, request: Request) -> Response:
        """Describe a topic: its partitions and configs."""
        query_of(request, NO_QUERY)
        answer_media(request, (Media.JSON,))
        context = context_of(request)
        return await self._described(context, await self._broker.known_topic(context, topic_of(request)))

    async def alter(self, request: Request) -> Response:
        """Change configs (null sets the default again) or add partitions."""
        form = parse_typed(_ALTER, await json_body(self._service, request))
        context = context_of(request)
        topic = await self._broker.alter_topic(context, topic_of(request), form.partitions, form.configs)
        return await self._described(context, topic)

    async def delete(self, request: Request) -> Response:
        """Delete a topic and its records."""
        query_of(request, NO_QUERY)
        await self._broker.delete_topic(context_of(request), topic_of(request))
        return Response(status_code=204)

    async def delete_records(self, request: Request) -> Response:
        """Delete the records of a partition below an offset; -1 deletes all that are committed now. Their segments are
        deleted from the bucket after `delete.grace.ms`."""
        topic, partition = topic_of(request), partition_of(request)
        before_offset = parse_typed(_DELETE_RECORDS, await json_body(self._service, request)).before_offset
        log_start = await self._broker.delete_records(context_of(request), topic, partition, before_offset)
        return json_answer(LogStartAnswer(log_start))

    async def _described(self, context: RequestContext, topic: Topic) -> Response:
        return json_answer(_description(topic, await described_partitions(topic, self._reader(context))))

    def _reader(self, context: RequestContext) -> ReadOffsets:
        """Reads ends for the request with `context`. A partition that is not loaded costs a request to the store."""
        return lambda parts: self._broker.fetch_parts(context, parts, _ENDS_ONLY)


def _description(topic: Topic, partitions: Sequence[PartitionDescription]) -> TopicDescription:
    configs = topic.config.as_kafka()
    return TopicDescription(topic.name, topic.topic_id, tuple(partitions), configs, topic.created_at_ms)
