"""The metrics that brokers and etcd export, read from real ones after some traffic, so that every family has its
labels."""

from __future__ import annotations

import httpx
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families
from tests.anybody import ANYBODY
from tests.broker.cluster_world import CLUSTER, running_world
from tests.broker.drafts import numbered
from tests.components.etcd_server import EtcdServer
from tests.infra.promql import Exported

from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.doors.front_door import ServedBroker
from tidelog.services.http.app import create_app
from tidelog.services.runtime.wiring import open_broker
from tidelog.services.settings.settings import Settings
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.wire.groups import FetchOffsets

LIMITS = FetchLimits(1_000, 1 << 20)


async def of_a_broker_in_a_cluster() -> Exported:
    """Metrics of a broker that leads some shards and has a peer that leads others."""
    async with running_world(dict.fromkeys(("a", "b"), MemoryObjectStore()), shards=2) as world:
        return await _after_traffic(world.brokers["a"], CLUSTER)


async def of_a_broker_alone() -> Exported:
    """Metrics of a broker without etcd."""
    settings = Settings(store="memory:", shards=2)
    broker: LocalBroker = open_broker(settings, Runtime(), store=MemoryObjectStore())
    await broker.start()
    try:
        return await _after_traffic(broker, settings)
    finally:
        await broker.aclose()


async def of_etcd(server: EtcdServer) -> Exported:
    """Metrics of an etcd member."""
    async with httpx.AsyncClient(trust_env=False) as http:
        return parsed((await http.get(f"http://127.0.0.1:{server.health_port}/metrics")).text)


async def _after_traffic(broker: ServedBroker, settings: Settings) -> Exported:
    await broker.create_topic(ANYBODY, "t", 2, {})
    for partition in range(2):
        await broker.produce(ANYBODY, "t", numbered(0, 3), ProduceOptions(partition=partition))
        await broker.fetch(ANYBODY, "t", partition, 0, LIMITS)
    for number in range(16):  # some of them are coordinated here
        await broker.groups.call(ANYBODY, f"group-{number}", FetchOffsets())
    app: FastAPI = create_app(broker, settings, Runtime())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        assert (await http.get("/v1/topics/absent")).status_code == 404
        return parsed((await http.get("/metrics")).text)


def parsed(text: str) -> Exported:
    """The labels of every sample, by name."""
    found: dict[str, frozenset[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, frozenset()) | frozenset(sample.labels)
    return found
