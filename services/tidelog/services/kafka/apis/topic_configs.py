"""The configs of topics under Kafka's names, with their types, defaults and sources.

Tidelog stores the configs of `TopicConfig`. Kafka has more, for example for its replicas and the files of its log. A
client may set those too, because programs that were written for Kafka do: the ones in `WITHOUT_EFFECT` are accepted and
not stored, since the bucket replicates and there are no such files. Any other name is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from functools import cache

from tidelog.coordinator.topics.topic import TopicConfig


class Source(IntEnum):
    """Where a value comes from (ConfigSource)."""

    DYNAMIC_TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class Type(IntEnum):
    """The type of a value (ConfigType)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True)
class ConfigEntry:
    """A config of a topic or broker with its value."""

    name: str
    value: str
    default: str
    type: Type
    source: Source
    is_read_only: bool = False


WITHOUT_EFFECT: Mapping[str, tuple[Type, str]] = {
    "compression.type": (Type.STRING, "producer"),
    "flush.messages": (Type.LONG, str(2**63 - 1)),
    "flush.ms": (Type.LONG, str(2**63 - 1)),
    "follower.replication.throttled.replicas": (Type.LIST, ""),
    "index.interval.bytes": (Type.INT, "4096"),
    "leader.replication.throttled.replicas": (Type.LIST, ""),
    "message.timestamp.after.max.ms": (Type.LONG, "3600000"),
    "message.timestamp.before.max.ms": (Type.LONG, str(2**63 - 1)),
    "min.insync.replicas": (Type.INT, "1"),
    "preallocate": (Type.BOOLEAN, "false"),
    "segment.index.bytes": (Type.INT, "10485760"),
    "segment.jitter.ms": (Type.LONG, "0"),
    "unclean.leader.election.enable": (Type.BOOLEAN, "false"),
}
"""Configs of Kafka that change nothing here, with their types and Kafka's defaults."""
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
        name: ConfigEntry(name, default, default, kind, Source.DEFAULT)
        for name, (kind, default) in WITHOUT_EFFECT.items()
    }
    yield from (entry for _, entry in sorted((moot | own).items()))


def stored_changes(changes: Mapping[str, str | None]) -> Mapping[str, str | None]:
    """`changes` without those that have no effect."""
    return {name: value for name, value in changes.items() if name not in WITHOUT_EFFECT}


def list_config(name: str) -> bool:
    """Whether APPEND and SUBTRACT apply."""
    kind = _TYPES.get(name, WITHOUT_EFFECT.get(name, (Type.LONG, ""))[0])
    return kind is Type.LIST


@cache
def _defaults() -> Mapping[str, str]:
    return {each.metadata["kafka"]: str(each.metadata["default"]) for each in fields(TopicConfig)}


def _source(value: str, default: str) -> Source:
    """A value that was set to the default counts as the default: the catalog does not tell them apart."""
    return Source.DEFAULT if value == default else Source.DYNAMIC_TOPIC
