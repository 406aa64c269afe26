"""AlterConfigs (33): replaces all configs of a topic. Configs that the request does not name get their defaults."""

from __future__ import annotations

from functools import partial

from kio.schema.alter_configs.v2.request import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from kio.schema.alter_configs.v2.response import AlterConfigsResourceResponse, AlterConfigsResponse
from kio.schema.errors import ErrorCode

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.kafka.apis.config_changes import Changes, alter_resource
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.apis.refusals import Refused
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode


class AlterConfigsApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request = decode(call, AlterConfigsRequest)
        answers = [await self._answer(call, each, request.validate_only) for each in request.resources]
        return encode(call, AlterConfigsResponse(throttle_time=NO_TIME, responses=tuple(answers)))

    async def _answer(self, call: Call, asked: AlterConfigsResource, only_check: bool) -> AlterConfigsResourceResponse:
        changes = partial(_changes, asked.configs)
        outcome = await alter_resource(self._broker, call, asked, changes, only_check=only_check)
        return AlterConfigsResourceResponse(**outcome)


def _changes(configs: tuple[AlterableConfig, ...], topic: Topic) -> Changes:
    """Raises `Refused`."""
    for config in configs:
        if config.value is None:
            text = f"{config.name[:200]} has no value: give one, or leave the config out"
            raise Refused(ErrorCode.invalid_request, text)
    return dict.fromkeys(topic.config.as_kafka()) | {config.name: config.value for config in configs}
