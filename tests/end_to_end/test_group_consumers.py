"""Consumers of a group at three `tidelog serve` with a real etcd: fetches go to the leaders, and a broker dies."""

from __future__ import annotations

import threading
import time

from tests.end_to_end.broker_cluster import BrokerCluster
from tests.end_to_end.broker_process import wait_until

from tidelog.client import Admin, Consumer, ConsumerOptions, Producer, TopicPartition

PARTITIONS = 6
WAIT_S = 40.0
OPTIONS = ConsumerOptions(auto_commit_interval_s=0.2, session_timeout_s=10.0)


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


def test_a_group_reads_from_the_leaders_and_skips_nothing_when_one_dies(whole: BrokerCluster) -> None:
    addresses, topic, rounds = whole.addresses, "shared", 0

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
        whole.brokers[0].kill()
        began = time.monotonic()
        produce()
        wait_until(everything, WAIT_S)
        assert time.monotonic() - began < WAIT_S
        whole.brokers[0].start()
        produce()
        wait_until(everything, WAIT_S)
    finally:
        for reader in readers:
            reader.stop()
    with Admin(addresses) as admin:
        offsets = admin.group_offsets("readers")
    assert {offsets[TopicPartition(topic, one)].offset for one in range(PARTITIONS)} == {rounds * 50}
