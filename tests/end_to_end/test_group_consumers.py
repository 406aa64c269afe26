"""Consumers of a group at three `tidelog serve` with a real etcd: fetches go to the leaders, and a broker dies."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.components.etcd_server import EtcdServer
from tests.end_to_end.broker_process import BrokerProcess, wait_until
from tests.end_to_end.group_client import SECRET

from tidelog.client import Admin, Consumer, ConsumerOptions, Producer, TopicPartition

PARTITIONS, SHARDS = 6, 3
WAIT_S = 40.0
OPTIONS = ConsumerOptions(auto_commit_interval_s=0.2, session_timeout_s=10.0)


@pytest.fixture(scope="module")
def brokers(etcd: EtcdServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    folder = tmp_path_factory.mktemp("consumers")
    settings = {
        "store": f"file:{folder / 'data'}",
        "etcd.endpoints": etcd.url,
        "cluster.name": "group-consumers",
        "shards": SHARDS,
        "lease.ttl.ms": 1_000,
        "rebalance.delay.ms": 0,
        "peer.secret": SECRET,
    }
    with ExitStack() as stack:
        found = [BrokerProcess(folder, {**settings, "broker.id": f"broker-{number}"}) for number in range(3)]
        for broker in found:
            stack.callback(broker.stop)
            broker.start()
        wait_until(lambda: len(set(leaders(found[0].url))) == SHARDS, WAIT_S)
        yield found


def leaders(url: str) -> list[str]:
    with Admin(url) as admin:
        return [shard.leader or "" for shard in admin.cluster().cluster.shards]


class Reader(threading.Thread):
    """A member that reads in a thread until `stop`; `seen` has the records."""

    def __init__(self, addresses: str, topic: str) -> None:
        super().__init__()
        self.consumer = Consumer(addresses, topic, group="readers", options=OPTIONS)
        self.seen: list[tuple[int, int]] = []
        self.stopping = threading.Event()
        self.start()

    def run(self) -> None:
        with self.consumer:
            while not self.stopping.is_set():
                batch = self.consumer.poll(0.2)
                if batch is not None:
                    self.seen += [(batch.partition, offset) for offset in batch.records.column("offset").to_pylist()]

    def stop(self) -> None:
        self.stopping.set()
        self.join()


def test_a_group_reads_from_the_leaders_and_skips_nothing_when_one_dies(brokers: list[BrokerProcess]) -> None:
    addresses, topic, rounds = ",".join(broker.url for broker in brokers), "shared", 0

    def produce() -> None:
        nonlocal rounds
        with Producer(addresses, topic) as producer:
            for number in range(300):
                producer.send(b"%d" % number, partition=number % PARTITIONS)
        rounds += 1

    with Admin(addresses) as admin:
        admin.create_topic(topic, PARTITIONS)
    readers = [Reader(addresses, topic) for _ in range(2)]
    try:

        def everything() -> bool:
            return {one for reader in readers for one in reader.seen} == {
                (partition, offset) for partition in range(PARTITIONS) for offset in range(rounds * 50)
            }

        produce()
        wait_until(everything, WAIT_S)
        with Admin(addresses) as admin:
            members = {one.broker: one.address for one in admin.cluster().cluster.brokers}
            led = [members[shard.leader or ""] for shard in admin.cluster().cluster.shards]
            places = {one.partition: led[one.shard] for one in admin.topic(topic).partitions}
        for reader in readers:
            map_of_leaders = reader.consumer._core.leaders
            assert reader.consumer.assignment
            for partition in reader.consumer.assignment:
                assert map_of_leaders.of(partition) == places[partition.partition]
        brokers[0].kill()
        began = time.monotonic()
        produce()
        wait_until(everything, WAIT_S)
        assert time.monotonic() - began < WAIT_S
        brokers[0].start()
        produce()
        wait_until(everything, WAIT_S)
    finally:
        for reader in readers:
            reader.stop()
    with Admin(addresses) as admin:
        offsets = admin.group_offsets("readers")
    assert {offsets[TopicPartition(topic, one)].offset for one in range(PARTITIONS)} == {rounds * 50}
