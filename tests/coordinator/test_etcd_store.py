"""`EtcdKeyValueStore` on real servers: the newest release, and Debian's."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.components.etcd_server import EtcdServer
from tests.coordinator.etcd_gateway import compact
from tests.coordinator.key_value_conformance import KeyValueConformance

from tidelog.coordinator.etcd.settings import EtcdSettings
from tidelog.coordinator.etcd.store import EtcdKeyValueStore
from tidelog.coordinator.kv.key_value import KeyValueStore
from tidelog.storage.runtime import Runtime


class _OnEtcd(KeyValueConformance):
    @pytest.fixture
    async def store(self, server: EtcdServer) -> AsyncIterator[KeyValueStore]:
        store = EtcdKeyValueStore(EtcdSettings((server.url,), timeout_s=10.0), Runtime())
        yield store
        await store.aclose()

    @pytest.fixture(autouse=True)
    def _known_server(self, server: EtcdServer) -> None:
        self.server = server

    async def forget(self, store: KeyValueStore, revision: int) -> None:
        await compact(self.server, revision)


class TestNewestEtcd(_OnEtcd):
    @pytest.fixture
    def server(self, etcd: EtcdServer) -> EtcdServer:
        return etcd


class TestEtcd34(_OnEtcd):
    @pytest.fixture
    def server(self, etcd34: EtcdServer) -> EtcdServer:
        return etcd34
