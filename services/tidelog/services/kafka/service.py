"""The objects that all APIs share, as one value."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tidelog.coordinator.topics.topic import TopicLimits
from tidelog.services.broker.api.broker import Broker
from tidelog.services.settings.settings import Settings
from tidelog.storage.runtime import Runtime


@dataclass(frozen=True)
class KafkaService:
    """A broker with its Kafka interface. `draining`: set when the broker stops; long polls end then."""

    broker: Broker
    settings: Settings
    runtime: Runtime
    draining: asyncio.Event

    @property
    def topic_limits(self) -> TopicLimits:
        settings = self.settings
        return TopicLimits(settings.topics_max, settings.topic_partitions_max, settings.partitions_max)
