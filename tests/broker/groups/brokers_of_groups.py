"""A broker with topics for groups."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker

from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.stores.memory import MemoryObjectStore


@asynccontextmanager
async def broker_of_groups(**settings: object) -> AsyncIterator[LocalBroker]:
    """A broker with the topics ``web`` (100 partitions) and ``other`` (1)."""
    async with running_broker(MemoryObjectStore(), **settings) as broker:
        await broker.create_topic(ANYBODY, "web", 100, {})
        await broker.create_topic(ANYBODY, "other", 1, {})
        yield broker
