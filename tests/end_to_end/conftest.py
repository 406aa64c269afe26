"""Brokers in processes of their own, which end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from tests.end_to_end.broker_process import BrokerProcess

StartBroker = Callable[..., BrokerProcess]

QUICK_ARCHIVE = {"archiver.interval.ms": 300}
"""So that segments and the floor take part in what is tested. Deletion does not: its grace is a minute at least."""


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Starts brokers: ``start_broker({"store": ...}, environment)``; the default store is a folder of the test's."""
    started: list[BrokerProcess] = []

    def start(
        settings: Mapping[str, object] | None = None, environment: Mapping[str, str] | None = None
    ) -> BrokerProcess:
        chosen = {"store": f"file:{tmp_path / 'data'}", **QUICK_ARCHIVE, **(settings or {})}
        broker = BrokerProcess(tmp_path, chosen, environment)
        started.append(broker)
        broker.start()
        return broker

    yield start
    for broker in started:
        broker.stop()


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    """A broker on a folder of the test's own."""
    return start_broker()
