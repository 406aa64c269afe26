"""The cluster's gauges in Prometheus' format: what a broker knows about its cluster."""

from tests.broker.brokers import SETTINGS
from tests.broker.cluster_world import running_world

from tidelog.services.broker.api.cluster import ClusterStatus
from tidelog.services.broker.api.request_context import BROKER_ITSELF
from tidelog.services.http.metrics.broker_collector import cluster_metrics
from tidelog.services.runtime.wiring import open_broker
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.memory import MemoryObjectStore


def gauges(status: ClusterStatus) -> dict[str, float]:
    """Gauges by name, without their common prefix."""
    return {family.name.removeprefix("tidelog_"): family.samples[0].value for family in cluster_metrics(status)}


async def test_brokers_shards_and_those_that_nobody_leads_are_reported() -> None:
    async with running_world(dict.fromkeys(("a", "b"), MemoryObjectStore()), shards=3) as world:
        whole = {
            "cluster_brokers": 2,
            "cluster_shards": 3,
            "cluster_shards_without_leader": 0,
            "coordinator_trouble": 0,
        }
        assert gauges(world.brokers["b"].cluster(BROKER_ITSELF)) == whole
        await world.take(1)
        assert gauges(world.brokers["b"].cluster(BROKER_ITSELF)) == {**whole, "cluster_shards_without_leader": 1}


async def test_a_broker_alone_is_a_cluster_of_one() -> None:
    broker = open_broker(SETTINGS, Runtime(), store=MemoryObjectStore())
    await broker.start()
    assert gauges(broker.cluster(BROKER_ITSELF))["cluster_brokers"] == 1
    assert gauges(broker.cluster(BROKER_ITSELF))["cluster_shards_without_leader"] == 0
    await broker.aclose()


def test_trouble_with_etcd_is_one() -> None:
    troubled = ClusterStatus("", "main", "etcd", "etcd cannot be reached", (), ())
    assert gauges(troubled)["coordinator_trouble"] == 1
