"""The cost of a cluster is the sum of its brokers' counts; a broker that does not answer is named."""

from __future__ import annotations

from pathlib import Path

from tests.components.etcd_server import EtcdServer
from tests.end_to_end.broker_process import BrokerProcess, run_tidelog, wait_until
from tests.end_to_end.conftest import StartBroker

from tidelog.client import Admin, Producer

PARTITIONS, RECORDS = 4, 400


def test_all_brokers_are_asked_and_a_silent_one_is_named(
    start_broker: StartBroker, etcd: EtcdServer, tmp_path: Path
) -> None:
    settings = {
        "store": f"file:{tmp_path / 'data'}",
        "etcd.endpoints": etcd.url,
        "cluster.name": "costly",
        "rebalance.delay.ms": 0,
        "lease.ttl.ms": 30_000,
    }
    first, second = (start_broker({**settings, "broker.id": f"broker-{n}"}) for n in (1, 2))
    with Admin(first.url) as admin:
        wait_until(lambda: {shard.leader for shard in admin.cluster().cluster.shards} == {"broker-1", "broker-2"}, 30)
        admin.create_topic("t", PARTITIONS)
        with Producer(first.url, "t") as producer:
            for number in range(RECORDS):
                producer.send(b"%d" % number, partition=number % PARTITIONS)
            producer.flush()
        found = admin.cluster_cost()
        assert sorted(broker.broker for broker in found.brokers) == ["broker-1", "broker-2"]
        assert (found.silent, found.shards_without_numbers) == ((), 0)
        assert [(topic.topic, topic.records_in, topic.partitions) for topic in found.topics] == [
            ("t", RECORDS, PARTITIONS)
        ]
        check_silent(first, second)


def check_silent(asked: BrokerProcess, other: BrokerProcess) -> None:
    """A broker that has just died stays a member until its lease ends."""
    other.kill()
    with Admin(asked.url) as admin:
        found = admin.cluster_cost()
    assert ([broker.broker for broker in found.brokers], found.silent) == (["broker-1"], ("broker-2",))
    assert found.shards_without_numbers > 0
    shown = run_tidelog(["cluster", "cost"], broker=asked.url)
    assert shown.returncode == 0
    assert b"broker-2 does not answer" in shown.stderr
