"""One broker in memory for the tests of the client; each test has its own topic."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tests.end_to_end.broker_process import BrokerProcess

from tidelog.client import Admin


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a broker whose new topics have three partitions."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), {"store": "memory:", "num.partitions": 3})
    process.start()
    yield process.url
    process.stop()


@pytest.fixture
def topic(broker: str) -> str:
    """A topic with three partitions."""
    name = f"topic-{uuid.uuid4().hex}"
    with Admin(broker) as admin:
        admin.create_topic(name, partitions=3)
    return name
