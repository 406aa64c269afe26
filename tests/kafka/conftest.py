"""A real `LocalBroker` on a memory store behind a `KafkaDoor`, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
from tests.kafka.kio_client import KioClient

from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.doors.kafka_counts import KafkaCounts
from tidelog.services.kafka.kafka_door import KafkaDoor
from tidelog.services.runtime.wiring import open_broker
from tidelog.services.settings.listeners import parse_listeners
from tidelog.services.settings.settings import Settings
from tidelog.storage.runtime import Runtime

SETTINGS = Settings(
    store="memory:",
    shards=2,
    num_partitions=2,
    listeners="PLAINTEXT://127.0.0.1:0",
    shutdown_timeout_ms=4_000,
    group_initial_rebalance_delay_ms=100,  # the default of 3 s is tested in virtual time: tests/coordinator/groups
)


@dataclass(frozen=True)
class KafkaServed:
    """A broker that listens for clients of Kafka's protocol."""

    broker: LocalBroker
    door: KafkaDoor
    settings: Settings
    serving: asyncio.Task[None]
    counts: KafkaCounts

    @property
    def port(self) -> int:
        return parse_listeners("listeners", self.door.address)[0].port

    async def connect(self) -> KioClient:
        return await KioClient.connect("127.0.0.1", self.port)


@pytest.fixture
def settings() -> Settings:
    """A test module may override them."""
    return SETTINGS


@pytest.fixture
async def served(settings: Settings) -> AsyncIterator[KafkaServed]:
    runtime, counts = Runtime(), KafkaCounts()
    door = KafkaDoor(runtime, counts)
    bound = replace(door.bind(settings), shutdown_timeout_ms=4_000)
    broker = open_broker(bound, runtime)
    await broker.start()
    assert isinstance(broker, LocalBroker)
    serving = asyncio.ensure_future(door.serve(broker, bound))
    yield KafkaServed(broker, door, bound, serving, counts)
    door.drain()
    await serving
    await broker.aclose()


@pytest.fixture
async def client(served: KafkaServed) -> AsyncIterator[KioClient]:
    connected = await served.connect()
    yield connected
    await connected.aclose()
