"""DescribeConfigs (32): the configs of topics, brokers and groups, with Kafka's names, defaults and sources.

Clients ask a broker for its own configs. Loggers of brokers and subscriptions to client metrics have none here.
"""

from __future__ import annotations

from collections.abc import Iterable

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kio.schema.errors import ErrorCode

from tidelog.services.kafka.apis.broker_configs import broker_config_entries
from tidelog.services.kafka.apis.config_resources import Resource, check_named, check_own
from tidelog.services.kafka.apis.config_synonyms import default_name
from tidelog.services.kafka.apis.group_configs import group_config_entries
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.apis.refusals import refusal_of
from tidelog.services.kafka.apis.topic_configs import ConfigEntry, Source, topic_config_entries
from tidelog.services.kafka.apis.topic_lookup import TopicLookup
from tidelog.services.kafka.cluster_nodes import own_node_id
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import TidelogError


class DescribeConfigsApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request = decode(call, DescribeConfigsRequest)
        once = {(each.resource_type, each.resource_name): each for each in request.resources}
        results = [await self._result(call, each, request.include_synonyms) for each in once.values()]
        return encode(call, DescribeConfigsResponse(throttle_time=NO_TIME, results=tuple(results)))

    async def _result(self, call: Call, asked: DescribeConfigsResource, with_synonyms: bool) -> DescribeConfigsResult:
        code, message, found = ErrorCode.none, None, ()
        try:
            entries = await self._entries(call, asked)
            keys = asked.configuration_keys
            # clients of version 1 send an empty list for "all", as Kafka takes it
            wanted = [entry for entry in entries if not keys or entry.name in keys]
            found = tuple(_told(entry, with_synonyms) for entry in wanted)
        except TidelogError as error:
            code, message = refusal_of(error)
        return DescribeConfigsResult(
            error_code=code,
            error_message=message,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
            configs=found,
        )

    async def _entries(self, call: Call, asked: DescribeConfigsResource) -> Iterable[ConfigEntry]:
        if asked.resource_type == Resource.TOPIC:
            topic = await TopicLookup(self._broker, call.context).by_name(asked.resource_name)
            return topic_config_entries(topic.config)
        if asked.resource_type == Resource.BROKER and not asked.resource_name:
            return ()  # the dynamic defaults of all brokers: there are none
        check_named(asked.resource_type, asked.resource_name)
        if asked.resource_type == Resource.GROUP:
            return group_config_entries(self._service.settings)
        if asked.resource_type == Resource.CLIENT_METRICS:
            return ()
        own = own_node_id(self._service)
        check_own(asked.resource_name, own)
        is_broker = asked.resource_type == Resource.BROKER
        return broker_config_entries(self._service.settings, own) if is_broker else ()


def _told(entry: ConfigEntry, with_synonyms: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=int(entry.source),
        is_sensitive=False,
        synonyms=tuple(_synonyms(entry)) if with_synonyms else (),
        config_type=int(entry.type),
        documentation=None,
    )


def _synonyms(entry: ConfigEntry) -> Iterable[DescribeConfigsSynonym]:
    """The values that `entry` has, in order of precedence."""
    if entry.source is not Source.DEFAULT:
        yield DescribeConfigsSynonym(name=entry.name, value=entry.value, source=int(entry.source))
    if (name := default_name(entry.name)) is not None:
        yield DescribeConfigsSynonym(name=name, value=entry.default, source=int(Source.DEFAULT))
