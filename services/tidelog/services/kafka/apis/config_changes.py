"""Applies changes of configs, for IncrementalAlterConfigs and AlterConfigs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.broker import Broker
from tidelog.services.kafka.apis.config_resources import Resource, fixed
from tidelog.services.kafka.apis.refusals import refusal_of
from tidelog.services.kafka.apis.topic_configs import stored_changes
from tidelog.services.kafka.apis.topic_lookup import TopicLookup
from tidelog.services.kafka.protocol.api import Call
from tidelog.storage.errors import TidelogError

Changes = Mapping[str, str | None]
"""New values by name; None puts the default back."""


async def alter_resource(
    broker: Broker, call: Call, asked: Any, changes_of: Callable[[Topic], Changes], *, only_check: bool
) -> dict[str, Any]:
    """Change the configs of the resource `asked` as `changes_of` says. Returns the members of its answer."""
    code, message = ErrorCode.none, None
    try:
        await _altered(broker, call, asked, changes_of, only_check)
    except TidelogError as error:
        code, message = refusal_of(error)
    return {
        "error_code": code,
        "error_message": message,
        "resource_type": asked.resource_type,
        "resource_name": asked.resource_name,
    }


def _altered(
    broker: Broker, call: Call, asked: Any, changes_of: Callable[[Topic], Changes], only_check: bool
) -> Awaitable[None]:
    if asked.resource_type == Resource.TOPIC:
        return _alter_topic(broker, call, asked.resource_name, changes_of, only_check)
    own = broker.status().node_id
    raise fixed(asked.resource_type, asked.resource_name, [config.name for config in asked.configs], own)


async def _alter_topic(
    broker: Broker, call: Call, name: str, changes_of: Callable[[Topic], Changes], only_check: bool
) -> None:
    topic = await TopicLookup(broker, call.context).by_name(name)
    changes = stored_changes(changes_of(topic))
    topic.config.altered(changes)
    if changes and not only_check:
        await broker.alter_topic(call.context, name, None, changes)
