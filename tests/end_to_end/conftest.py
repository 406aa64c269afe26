"""Brokers in their own processes. Those of `start_broker` end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from tests.components.etcd_server import EtcdServer
from tests.end_to_end.broker_cluster import BROKERS, BrokerCluster, broker_cluster
from tests.end_to_end.broker_process import BrokerProcess

StartBroker = Callable[..., BrokerProcess]

QUICK_ARCHIVE = {"archiver.interval.ms": 300}
"""So that the test covers segments and the floor. It does not cover deletion: its grace is at least a minute."""


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Starts brokers: ``start_broker({"store": ...}, environment)``. The default store is a folder of the test."""
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


@pytest.fixture(scope="module")
def cluster(etcd: EtcdServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    """Three brokers that the tests of a file share; see `broker_cluster`."""
    with broker_cluster(etcd, tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def whole(cluster: BrokerCluster) -> Iterator[BrokerCluster]:
    """All connections are open, and each broker leads a shard."""
    cluster.await_leaders(set(range(BROKERS)))
    yield cluster
    cluster.mend()


@pytest.fixture
def shared_broker(_broker_of_file: BrokerProcess) -> BrokerProcess:
    """A broker that the tests of a file share, because a start costs seconds. A test uses topics of its own names, and
    may kill or stop the broker."""
    if not _broker_of_file.is_running():
        _broker_of_file.start()
    return _broker_of_file


@pytest.fixture(scope="module")
def _broker_of_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    broker = BrokerProcess(folder, {"store": f"file:{folder / 'data'}", **QUICK_ARCHIVE})
    yield broker
    broker.stop()
