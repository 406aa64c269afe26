"""An idle cluster makes no PUT and no LIST (which costs as much). It only reads floors, and sweeps once a day
(`test_sweep_loop` counts that).

The brokers' clock runs fast, so that a test sees each of their timers fire many times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.anybody import ANYBODY
from tests.broker.brokers import SETTINGS, until
from tests.broker.drafts import draft
from tests.broker.fast_clock import FastClock
from tests.components.etcd_server import EtcdServer

from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.runtime.wiring import open_broker
from tidelog.services.settings.settings import Settings
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.counting import NO_REQUESTS, RequestCounts
from tidelog.storage.stores.memory import MemoryObjectStore

HOUR_S = 3_600.0
PARTITIONS = 4
USUAL = replace(SETTINGS, archiver_interval_ms=Settings().archiver_interval_ms, shards=PARTITIONS)
"""The broker's default interval of archiving."""

AT_ONCE: dict[str, str | int | None] = {"file.delete.delay.ms": 0}
"""Garbage goes after the grace of the broker, not a day later."""

TOPICS: dict[str, dict[str, str | int | None]] = {
    "kept": {"retention.ms": -1, **AT_ONCE},
    "expiring": {"retention.ms": 7 * 86_400_000, **AT_ONCE},
    "compacted": {"cleanup.policy": "compact", **AT_ONCE},
}


async def fill(brokers: Sequence[LocalBroker]) -> None:
    """Write some records to every partition of topics of every kind, through each shard's leader."""
    for name, configs in TOPICS.items():
        topic = await brokers[0].create_topic(ANYBODY, name, PARTITIONS, configs)
        for partition, shard in enumerate(topic.shards):
            (leader,) = (broker for broker in brokers if shard in broker.shards.led())
            records = draft([b"v"] * 20, keys=[b"k%d" % (n % 5) for n in range(20)])
            await leader.known_topic(ANYBODY, name)
            await leader.produce(ANYBODY, name, records, ProduceOptions(partition=partition))


def at_rest(brokers: Sequence[LocalBroker]) -> bool:
    """Whether everything is archived, all due deletions are done, and each partition was looked at once."""
    if any(led.upkeep.has_unknown for broker in brokers for led in broker.shards.led_shards()):
        return False
    archives = [archive for broker in brokers for archive in broker.measurements().archives.values()]
    cold = sum(archive.cold.segments for archive in archives)
    return cold >= len(TOPICS) * PARTITIONS and not any(
        archive.hot_bytes or archive.cold.garbage_bytes for archive in archives
    )


def asked(brokers: Sequence[LocalBroker]) -> RequestCounts:
    """Requests of all brokers so far."""
    return sum((broker.measurements().usage.counts() for broker in brokers), NO_REQUESTS)


async def check_idle(brokers: Sequence[LocalBroker], clock: FastClock, hours: float) -> None:
    """Wait until the cluster is at rest, then count the brokers' requests during the next hours."""
    await until(lambda: at_rest(brokers))
    began_s, before = clock.monotonic(), asked(brokers)
    await until(lambda: clock.monotonic() - began_s > hours * HOUR_S)
    meanwhile = asked(brokers) + before.times(-1)
    minutes = (clock.monotonic() - began_s) / 60 + 1
    assert (meanwhile.puts, meanwhile.lists, meanwhile.deletes) == (0, 0, 0)
    assert meanwhile.gets <= minutes * PARTITIONS, "no more than a floor a minute and shard"


async def test_a_broker_alone_writes_nothing_in_hours_without_records() -> None:
    clock = FastClock(2_400)
    broker = open_broker(USUAL, Runtime(clock=clock), store=MemoryObjectStore())
    await broker.start()
    try:
        await fill([broker])
        await until(lambda: at_rest([broker]) and broker.measurements().sweeps.finished >= 1)
        await check_idle([broker], clock, hours=1)
    finally:
        await broker.aclose()


async def test_brokers_that_meet_in_etcd_write_nothing_either(etcd: EtcdServer) -> None:
    clock, bucket = FastClock(100), MemoryObjectStore()
    quick = replace(USUAL, archiver_interval_ms=5_000, delete_grace_ms=60_000, lease_ttl_ms=600_000)
    meeting = replace(quick, etcd_endpoints=etcd.url, cluster_name="idle", rebalance_delay_ms=0)
    brokers = [
        open_broker(
            replace(meeting, broker_id=name, advertised_address=f"http://{name}:1"), Runtime(clock=clock), store=bucket
        )
        for name in ("a", "b")
    ]
    try:
        for broker in brokers:
            await broker.start()
        await until(lambda: [len(broker.shards.led()) for broker in brokers] == [2, 2])
        await fill(brokers)
        await check_idle(brokers, clock, hours=0.05)
    finally:
        for broker in brokers:
            await broker.aclose()
