"""One Kafka 4.1 for the session, and a connection to it beside one to Tidelog."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator

import pytest
from benchmarks.kafka import KafkaBroker
from benchmarks.processes import Children
from tests.components.required import require_component
from tests.kafka.conftest import SETTINGS, KafkaServed
from tests.kafka.kio_client import KioClient
from tests.kafka.oracle.pair import Pair

from tidelog.services.settings.settings import Settings

KAFKA_SETTINGS = {
    "num.partitions": SETTINGS.num_partitions,
    "offsets.topic.num.partitions": 1,
    "log.cleaner.enable": "false",
    "group.initial.rebalance.delay.ms": SETTINGS.group_initial_rebalance_delay_ms,
}


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    require_component("kafka")
    folder = tmp_path_factory.mktemp("kafka")
    with Children(folder) as children:
        yield KafkaBroker(children, folder, KAFKA_SETTINGS)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def settings(kafka: KafkaBroker) -> Settings:
    """Tidelog starts after Kafka: a broker alone is quick."""
    return SETTINGS


@pytest.fixture
async def pair(kafka: KafkaBroker, served: KafkaServed, client: KioClient) -> AsyncIterator[Pair]:
    host, _, port = kafka.bootstrap.rpartition(":")
    connected = await KioClient.connect(host, int(port))
    yield Pair(connected, client)
    await connected.aclose()
