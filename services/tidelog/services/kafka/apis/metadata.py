"""Metadata (3): the brokers, and the topics with the leaders of their partitions.

A topic that does not exist is created if the request and ``auto.create.topics.enable`` allow that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode
from kio.schema.metadata.v10.request import MetadataRequest as ClusterOperationsRequest
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponseTopic

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.apis.metadata_encoding import MetadataEncoding, failed_entry
from tidelog.services.kafka.apis.topic_lookup import TopicLookup
from tidelog.services.kafka.cluster_nodes import cluster_nodes
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.error_codes import Family, error_code
from tidelog.services.kafka.protocol.messages import decode
from tidelog.services.kafka.service import KafkaService
from tidelog.storage.errors import AlreadyExists, Invalid, NotFound, TidelogError

_IDS_SINCE = 12
"""Versions 10 and 11 have a field for the id, but may not use it."""
_CLUSTER_OPERATIONS_LAST = 10
"""Later versions do not ask for the operations on the cluster: DescribeCluster does."""


@dataclass
class _Found:
    topics: list[Topic] = field(default_factory=list)
    failures: list[MetadataResponseTopic] = field(default_factory=list)


class MetadataApi(ImmediateApi):
    """See `protocol.api.Api`."""

    def __init__(self, service: KafkaService) -> None:
        super().__init__(service)
        self._encodings: dict[str, MetadataEncoding] = {}

    async def reply(self, call: Call) -> Answer:
        asks_for_cluster = call.version <= _CLUSTER_OPERATIONS_LAST
        request = decode(call, ClusterOperationsRequest if asks_for_cluster else MetadataRequest)
        if request.topics is None or (call.version == 0 and not request.topics):
            found = _Found(list(self._broker.topics(call.context)))
        else:
            found = await self._found(call, request.topics, request.allow_auto_topic_creation)
        call.count_errors(each.error_code for each in found.failures)
        encoding = self._encodings.setdefault(call.listener, MetadataEncoding())
        return encoding.answer(
            call.version,
            cluster_nodes(self._service, call.context, call.listener),
            found.topics,
            found.failures,
            with_topic_operations=request.include_topic_authorized_operations,
            with_cluster_operations=asks_for_cluster and request.include_cluster_authorized_operations,
        )

    async def _found(self, call: Call, asked: Sequence[MetadataRequestTopic], may_create: bool) -> _Found:
        found, lookup = _Found(), TopicLookup(self._broker, call.context)
        creates = may_create and self._service.settings.auto_create_topics_enable
        for each in _distinct(asked):
            if call.version < _IDS_SINCE and (each.name is None or each.topic_id):
                found.failures.append(failed_entry(ErrorCode.invalid_request, each.name or "", each.topic_id))
            elif each.name is None:
                self._find_by_id(lookup, each, found)
            else:
                await self._find_by_name(call, lookup, each.name, creates, found)
        return found

    def _find_by_id(self, lookup: TopicLookup, asked: MetadataRequestTopic, found: _Found) -> None:
        topic = lookup.by_id(asked.topic_id)
        if topic:
            found.topics.append(topic)
        else:
            found.failures.append(failed_entry(ErrorCode.unknown_topic_id, None, asked.topic_id))

    async def _find_by_name(self, call: Call, lookup: TopicLookup, name: str, creates: bool, found: _Found) -> None:
        try:
            found.topics.append(await self._topic(call, lookup, name, creates))
        except Invalid:
            found.failures.append(failed_entry(ErrorCode.invalid_topic_exception, name))
        except TidelogError as error:
            found.failures.append(failed_entry(error_code(error, Family.ADMIN), name))

    async def _topic(self, call: Call, lookup: TopicLookup, name: str, creates: bool) -> Topic:
        try:
            return await lookup.by_name(name)
        except NotFound:
            if not creates:
                raise
        try:
            return await self._broker.create_topic(call.context, name, None, {})
        except AlreadyExists:  # a request beside this one was first
            return await self._broker.known_topic(call.context, name)


def _distinct(asked: Sequence[MetadataRequestTopic]) -> Sequence[MetadataRequestTopic]:
    return tuple({(each.name, each.topic_id): each for each in asked}.values())
