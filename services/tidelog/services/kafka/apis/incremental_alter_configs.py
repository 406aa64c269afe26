"""IncrementalAlterConfigs (44): changes single configs of topics."""

from __future__ import annotations

from enum import IntEnum
from functools import partial

from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.kafka.apis.config_changes import Changes, alter_resource
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.apis.refusals import Refused
from tidelog.services.kafka.apis.topic_configs import list_config
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode


class Operation(IntEnum):
    """AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class IncrementalAlterConfigsApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request = decode(call, IncrementalAlterConfigsRequest)
        answers = [await self._answer(call, each, request.validate_only) for each in request.resources]
        return encode(call, IncrementalAlterConfigsResponse(throttle_time=NO_TIME, responses=tuple(answers)))

    async def _answer(self, call: Call, asked: AlterConfigsResource, only_check: bool) -> AlterConfigsResourceResponse:
        changes = partial(_changes, asked.configs)
        outcome = await alter_resource(self._broker, call, asked, changes, only_check=only_check)
        return AlterConfigsResourceResponse(**outcome)


def _changes(configs: tuple[AlterableConfig, ...], topic: Topic) -> Changes:
    """A config that does not exist may be deleted, as in Kafka. Raises `Refused`."""
    changes = {config.name: _value(config, topic) for config in configs}
    if len(changes) < len(configs):
        raise Refused(ErrorCode.invalid_request, "the request names a config twice")
    known = topic.config.as_kafka()
    return {name: value for name, value in changes.items() if value is not None or name in known}


def _value(config: AlterableConfig, topic: Topic) -> str | None:
    if config.config_operation == Operation.DELETE:
        return None
    if config.value is None:
        raise Refused(ErrorCode.invalid_request, f"{config.name[:200]} has no value: give one, or delete the config")
    if config.config_operation == Operation.SET:
        return str(config.value)
    if config.config_operation not in tuple(Operation):
        raise Refused(ErrorCode.invalid_request, f"the operation {config.config_operation} does not exist")
    if not list_config(config.name):
        raise Refused(ErrorCode.invalid_config, f"{config.name[:200]} is not a list: set it")
    return _changed_list(config, topic)


def _changed_list(config: AlterableConfig, topic: Topic) -> str:
    named = [part.strip() for part in config.value.split(",")]
    now = [part for part in topic.config.as_kafka().get(config.name, "").split(",") if part]
    if config.config_operation == Operation.APPEND:
        return ",".join(dict.fromkeys((*now, *named)))
    return ",".join(part for part in now if part not in named)
