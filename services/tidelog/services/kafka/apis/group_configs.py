"""The configs of a group under Kafka's names: those of the broker for all groups. They cannot be changed for one."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.services.kafka.apis.moot_configs import Type
from tidelog.services.kafka.apis.topic_configs import ConfigEntry, Source
from tidelog.services.settings.settings import Settings

GROUP_CONFIGS = {
    "consumer.heartbeat.interval.ms": "group_consumer_heartbeat_interval_ms",
    "consumer.session.timeout.ms": "group_consumer_session_timeout_ms",
}
"""The setting that each one is."""


def group_config_entries(settings: Settings) -> Iterator[ConfigEntry]:
    """By name. Kafka, too, tells the broker's value as the default of a group."""
    for name, attribute in GROUP_CONFIGS.items():
        value = str(getattr(settings, attribute))
        yield ConfigEntry(name, value, value, Type.INT, Source.DEFAULT)
