"""The configs of a broker under Kafka's names: tools and client libraries look some of them up. They are read-only: a
broker takes its settings when it starts."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.services.kafka.apis.moot_configs import Type
from tidelog.services.kafka.apis.topic_configs import ConfigEntry, Source
from tidelog.services.settings.setting import Setting
from tidelog.services.settings.settings import Settings
from tidelog.services.settings.settings_sources import known_settings

_SAME_NAME = (
    "advertised.listeners",
    "auto.create.topics.enable",
    "connections.max.idle.ms",
    "group.consumer.heartbeat.interval.ms",
    "group.consumer.session.timeout.ms",
    "group.initial.rebalance.delay.ms",
    "group.max.session.timeout.ms",
    "group.max.size",
    "group.min.session.timeout.ms",
    "listeners",
    "max.connections",
    "max.connections.per.ip",
    "num.partitions",
    "offset.metadata.max.bytes",
    "producer.id.expiration.ms",
    "queued.max.request.bytes",
    "socket.request.max.bytes",
)
"""Settings of Tidelog that have Kafka's name and meaning."""
_FIXED = (
    ConfigEntry("default.replication.factor", "1", "1", Type.INT, Source.DEFAULT, is_read_only=True),
    ConfigEntry("delete.topic.enable", "true", "true", Type.BOOLEAN, Source.DEFAULT, is_read_only=True),
    ConfigEntry("message.max.bytes", "1048588", "1048588", Type.INT, Source.DEFAULT, is_read_only=True),
    ConfigEntry("min.insync.replicas", "1", "1", Type.INT, Source.DEFAULT, is_read_only=True),
)
_TYPES = {"switch": Type.BOOLEAN, "text": Type.STRING, "count": Type.INT, "size": Type.LONG, "duration": Type.LONG}


def broker_config_entries(settings: Settings, node_id: int) -> Iterator[ConfigEntry]:
    """All configs of this broker that Kafka has too, by name."""
    number = str(node_id)
    found = [_entry(known_settings()[name], settings) for name in _SAME_NAME]
    found.append(ConfigEntry("node.id", number, number, Type.INT, Source.STATIC_BROKER, is_read_only=True))
    yield from sorted((*found, *_FIXED), key=lambda entry: entry.name)


def _entry(setting: Setting, settings: Settings) -> ConfigEntry:
    value, default = _text(getattr(settings, setting.attribute)), _text(setting.default)
    source = Source.DEFAULT if value == default else Source.STATIC_BROKER
    return ConfigEntry(setting.name, value, default, _TYPES[setting.kind], source, is_read_only=True)


def _text(value: str | int | bool | None) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
