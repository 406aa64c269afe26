"""The cluster's gauges in Prometheus' format: what a broker knows about its cluster."""

from prometheus_client import CollectorRegistry
from tests.broker.brokers import SETTINGS
from tests.broker.cluster_world import running_world

from tidelog.services.broker.api.cluster import ClusterStatus
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.http.metrics.cluster_collector import ClusterCollector, MemberBroker
from tidelog.services.runtime.wiring import open_broker
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.memory import MemoryObjectStore


def gauges(broker: MemberBroker) -> dict[str, float]:
    """Gauges by name, without their common prefix."""
    registry = CollectorRegistry()
    registry.register(ClusterCollector(broker))
    return {family.name.removeprefix("tidelog_"): family.samples[0].value for family in registry.collect()}


async def test_brokers_shards_and_those_that_nobody_leads_are_reported() -> None:
    async with running_world(dict.fromkeys(("a", "b"), MemoryObjectStore()), shards=3) as world:
        whole = {
            "cluster_brokers": 2,
            "cluster_shards": 3,
            "cluster_shards_without_leader": 0,
            "coordinator_trouble": 0,
        }
        assert gauges(world.brokers["b"]) == whole
        await world.take(1)
        assert gauges(world.brokers["b"]) == {**whole, "cluster_shards_without_leader": 1}


async def test_a_broker_alone_is_a_cluster_of_one() -> None:
    broker = open_broker(SETTINGS, Runtime(), store=MemoryObjectStore())
    await broker.start()
    assert gauges(broker)["cluster_brokers"] == 1
    assert gauges(broker)["cluster_shards_without_leader"] == 0
    await broker.aclose()


def test_trouble_with_etcd_is_one() -> None:
    class Troubled:
        def cluster(self, _context: RequestContext, /) -> ClusterStatus:
            return ClusterStatus("", "main", "etcd", "etcd cannot be reached", (), ())

    assert gauges(Troubled())["coordinator_trouble"] == 1
