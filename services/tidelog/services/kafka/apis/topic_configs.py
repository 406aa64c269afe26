"""The configs of topics under Kafka's names, with their types, defaults and sources.

Tidelog stores the configs of `TopicConfig`. Kafka has more, which are accepted and not stored (`moot_configs`).
Any other name is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from functools import cache

from tidelog.coordinator.topics.topic import TopicConfig
from tidelog.services.kafka.apis.moot_configs import WITHOUT_EFFECT, Type, check_moot


class Source(IntEnum):
    """Where a value comes from (ConfigSource)."""

    DYNAMIC_TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True)
class ConfigEntry:
    """A config of a topic or broker with its value."""

    name: str
    value: str
    default: str
    type: Type
    source: Source
    is_read_only: bool = False


_TYPES = {
    "cleanup.policy": Type.LIST,
    "max.message.bytes": Type.INT,
    "segment.bytes": Type.INT,
    "segment.key.bloom.filter": Type.BOOLEAN,
    "min.cleanable.dirty.ratio": Type.DOUBLE,
    "message.timestamp.type": Type.STRING,
}
"""The others are LONG."""


def topic_config_entries(config: TopicConfig) -> Iterator[ConfigEntry]:
    """All configs of a topic, by name."""
    defaults = _defaults()
    own = {
        name: ConfigEntry(name, value, defaults[name], _TYPES.get(name, Type.LONG), _source(value, defaults[name]))
        for name, value in config.as_kafka().items()
    }
    moot = {
        name: ConfigEntry(name, config.default, config.default, config.type, Source.DEFAULT)
        for name, config in WITHOUT_EFFECT.items()
    }
    yield from (entry for _, entry in sorted((moot | own).items()))


def stored_changes(changes: Mapping[str, str | None]) -> Mapping[str, str | None]:
    """`changes` without those that have no effect. Raises `Invalid` for a wrong value of one of these."""
    for name in changes.keys() & WITHOUT_EFFECT.keys():
        check_moot(name, changes[name])
    return {name: value for name, value in changes.items() if name not in WITHOUT_EFFECT}


def list_config(name: str) -> bool:
    """Whether APPEND and SUBTRACT apply."""
    moot = WITHOUT_EFFECT.get(name)
    return (moot.type if moot else _TYPES.get(name)) is Type.LIST


@cache
def _defaults() -> Mapping[str, str]:
    return {each.metadata["kafka"]: str(each.metadata["default"]) for each in fields(TopicConfig)}


def _source(value: str, default: str) -> Source:
    """A value that was set to the default counts as the default: the catalog does not tell them apart."""
    return Source.DEFAULT if value == default else Source.DYNAMIC_TOPIC
