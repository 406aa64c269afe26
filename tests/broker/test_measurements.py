"""What the broker counts, and what Prometheus reads of it."""

import asyncio

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker
from tests.broker.drafts import draft, numbered

from tidelog.client.prices import S3_STANDARD
from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.http.metrics.broker_collector import BrokerCollector
from tidelog.storage.stores.counting import Kind
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb


def scraped(broker: LocalBroker) -> dict[tuple[str, str], float]:
    """Values by the sample's name and the value of its first label."""
    registry = CollectorRegistry()
    registry.register(BrokerCollector(broker))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in families
        for sample in family.samples
    }


async def test_records_and_bytes_are_counted_by_topic() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.produce(ANYBODY, "a", draft([b"12345", b"123"], keys=[b"k", None]), ProduceOptions())
        await broker.produce(ANYBODY, "b", numbered(0, 10), ProduceOptions())
        await broker.fetch(ANYBODY, "a", 0, 0, FetchLimits(1, 1_000))
        counts = broker.measurements().topics
        assert (counts["a"].records_in, counts["a"].bytes_in) == (2, 9)
        assert (counts["a"].records_out, counts["a"].bytes_out) == (1, 6)
        assert (counts["b"].records_in, counts["b"].records_out) == (10, 0)


async def test_the_puts_of_the_wal_are_shared_out_to_the_topics_in_them() -> None:
    async with running_broker(MemoryObjectStore(), shards=1) as broker:
        before = broker.measurements().usage
        await asyncio.gather(
            *(broker.produce(ANYBODY, topic, numbered(0, 5), ProduceOptions()) for topic in "abc" for _ in range(4))
        )
        measured = broker.measurements()
        puts = (measured.usage - before).requests(Verb.CREATE, kind=Kind.WAL)
        assert abs(sum(counts.wal_puts for counts in measured.topics.values()) - puts) < 1e-9


async def test_prometheus_reads_rates_latency_depth_lag_and_dollars() -> None:
    async with running_broker(MemoryObjectStore(), shards=1) as broker:
        await broker.produce(ANYBODY, "a", numbered(0, 7), ProduceOptions())
        await broker.archive_now()
        await broker.produce(ANYBODY, "a", numbered(7, 3), ProduceOptions())
        metrics = scraped(broker)
        assert metrics["tidelog_produced_records_total", "a"] == 10
        assert metrics["tidelog_ack_seconds_count", ""] == 2
        assert metrics["tidelog_ack_seconds_bucket", "+Inf"] == 2
        assert metrics["tidelog_cold_end_lag_records", "a"] == 3
        assert metrics["tidelog_wal_entries", "0"] == 1
        assert metrics["tidelog_shard_leading", "0"] == 1
        assert metrics["tidelog_buffered_bytes", ""] == 0
        assert metrics["tidelog_estimated_dollars_total", "a"] > 2 * S3_STANDARD.put_usd
        assert metrics["tidelog_store_estimated_dollars_total", ""] >= metrics["tidelog_estimated_dollars_total", "a"]
