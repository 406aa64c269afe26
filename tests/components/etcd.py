"""Fixtures: an etcd of one member for each worker, and a fresh prefix of keys in it for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.components.etcd_server import EtcdCluster, EtcdServer
from tests.components.required import require_component


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """One server of the newest release. Do not stop or wipe it: the worker's other tests share it."""
    server = EtcdServer(require_component("etcd"), tmp_path_factory.mktemp("etcd"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def etcd34(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """One server of the oldest supported release."""
    server = EtcdServer(require_component("etcd34"), tmp_path_factory.mktemp("etcd34"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def etcd_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    """Three members only for this test, which may kill and pause them."""
    cluster = EtcdCluster.of(require_component("etcd"), tmp_path_factory.mktemp("etcd-cluster"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
