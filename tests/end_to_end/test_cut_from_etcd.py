"""Three `tidelog serve`, some of which lose only etcd: no read gives an older end than what another broker acknowledged
before the read began, and the clients find the new leaders."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest
from tests.components.cut_proxy import CutProxy
from tests.components.etcd_server import EtcdServer
from tests.end_to_end.broker_process import BrokerProcess, wait_until

from tidelog.client import Admin, Consumer

WAIT_S = 30.0
PARTITIONS = 3
LEASE_MS = 1_000
SEEN_WITHIN_S = 10.0


class Cluster:
    """Each broker reaches etcd through its own proxy."""

    def __init__(self, brokers: list[BrokerProcess], ways: list[CutProxy]) -> None:
        self.brokers = brokers
        self.ways = ways

    def leaders(self, seen_by: int) -> dict[int, int]:
        """The broker of each shard, as one of the brokers sees it."""
        with Admin(self.brokers[seen_by].url) as admin:
            shards = admin.cluster().cluster.shards
        return {s.shard: int(s.leader.removeprefix("broker-")) for s in shards if s.leader}

    def led_by(self, led: set[int], seen_by: int) -> bool:
        """Whether exactly these brokers lead, together all shards."""
        leaders = self.leaders(seen_by)
        return len(leaders) == PARTITIONS and set(leaders.values()) == led


@pytest.fixture(scope="module")
def cluster(etcd: EtcdServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cut")
    with ExitStack() as stack:
        ways = [stack.enter_context(CutProxy(etcd.url)) for _ in range(3)]
        brokers = [
            BrokerProcess(
                folder,
                {
                    "store": f"file:{folder / 'data'}",
                    "etcd.endpoints": way.url,
                    "etcd.timeout.ms": 500,
                    "cluster.name": "cut-from-etcd",
                    "broker.id": f"broker-{n}",
                    "shards": PARTITIONS,
                    "num.partitions": PARTITIONS,
                    "lease.ttl.ms": LEASE_MS,
                    "rebalance.delay.ms": 0,
                },
            )
            for n, way in enumerate(ways)
        ]
        for broker in brokers:
            stack.callback(broker.stop)
            broker.start()
        yield Cluster(brokers, ways)


@pytest.fixture
def whole(cluster: Cluster) -> Iterator[Cluster]:
    """All connections are open, and each broker leads a shard."""
    wait_until(lambda: cluster.led_by({0, 1, 2}, 0), WAIT_S)
    yield cluster
    for way in cluster.ways:
        way.mend()


def append(url: str, topic: str, partition: int) -> int:
    """Append one record; return the end of the partition after the acknowledgement."""
    path = f"{url}/v1/topics/{topic}/partitions/{partition}/records"
    answer = httpx.post(path, json={"records": [{"value": "x"}]}, timeout=20).raise_for_status()
    end: int = answer.json()["partitions"][0]["base_offset"] + 1
    return end


def end_told(url: str, topic: str, partition: int, question: str, acknowledged: int) -> int | None:
    """The end that an answer implies, or None for a refusal that sends the client elsewhere."""
    path = f"{url}/v1/topics/{topic}/partitions/{partition}"
    ways = {
        "latest": f"{path}/offset?at=latest",
        "time": f"{path}/offset?at=@4000000000000",
        "log": f"{path}/log",
        "fetch": f"{path}/records?offset={acknowledged - 1}",
        "poll": f"{path}/records?offset={acknowledged - 1}&wait_ms=100",
    }
    answer = httpx.get(ways[question], timeout=20)
    if answer.status_code == 503:
        assert answer.json()["code"] in ("not_leader", "leader_unknown", "unavailable"), answer.text
        return None
    assert answer.status_code == 200, answer.text
    told = answer.json()
    end: int = told.get("offset") or told.get("next_offset") or told["high_watermark"]
    return end


QUESTIONS = ("latest", "time", "log", "fetch", "poll")


def test_brokers_that_lose_etcd_alone_give_no_older_end_and_consumers_continue(whole: Cluster) -> None:
    """Two of three are cut off: each forwards to the other, as far as it knows."""
    brokers, topic = whole.brokers, "truth"
    for partition in range(PARTITIONS):
        append(brokers[0].url, topic, partition)
    for n in (1, 2):
        whole.ways[n].cut()
    wait_until(lambda: whole.led_by({0}, 0), WAIT_S)
    with ThreadPoolExecutor(len(QUESTIONS) * PARTITIONS * 2) as asking:
        for _ in range(3):
            ends = [append(brokers[0].url, topic, partition) for partition in range(PARTITIONS)]
            told = [
                (end, question, asking.submit(end_told, brokers[n].url, topic, partition, question, end))
                for n in (1, 2)
                for partition, end in enumerate(ends)
                for question in QUESTIONS
            ]
            older = [(end, question, one.result()) for end, question, one in told if (one.result() or end) < end]
            assert not older
    assert httpx.get(f"{brokers[1].url}/readyz", timeout=5).json()["reason"].startswith("etcd cannot be reached")

    began_s = time.monotonic()
    addresses = ",".join(brokers[n].url for n in (1, 2, 0))
    with Consumer(addresses, topic, start="start") as consumer:
        seen = sum(1 for _ in consumer.records(follow=False))
    assert seen == PARTITIONS * 4
    assert time.monotonic() - began_s < SEEN_WITHIN_S


def test_a_consumer_that_waits_at_a_broker_when_it_loses_etcd_gets_every_record_within_seconds(whole: Cluster) -> None:
    brokers, topic = whole.brokers, "followed"
    for partition in range(PARTITIONS):
        append(brokers[0].url, topic, partition)
    addresses = ",".join(brokers[n].url for n in (1, 2, 0))
    with Consumer(addresses, topic, start="end") as consumer:
        assert consumer.poll(timeout_s=0.2) is None
        for n in (1, 2):
            whole.ways[n].cut()
        wait_until(lambda: whole.led_by({0}, 0), WAIT_S)
        began_s = time.monotonic()
        acknowledged = [append(brokers[0].url, topic, n % PARTITIONS) for n in range(12)]
        seen = 0
        while seen < len(acknowledged):
            batch = consumer.poll(timeout_s=1.0)
            seen += batch.records.num_rows if batch else 0
            assert time.monotonic() - began_s < SEEN_WITHIN_S, f"{seen} of {len(acknowledged)}"


def test_requests_that_waited_in_a_paused_broker_are_answered_by_the_state_after_the_pause(whole: Cluster) -> None:
    brokers, topic = whole.brokers, "paused"
    for partition in range(PARTITIONS):
        append(brokers[0].url, topic, partition)
    os.kill(brokers[1].pid, signal.SIGSTOP)
    try:
        wait_until(lambda: whole.led_by({0, 2}, 0), WAIT_S)
        ends = [append(brokers[0].url, topic, partition) for partition in range(PARTITIONS)]
        sending = threading.Barrier(len(QUESTIONS) * PARTITIONS + 1)

        def ask(question: str, partition: int) -> tuple[int, int | None]:
            sending.wait()
            return ends[partition], end_told(brokers[1].url, topic, partition, question, ends[partition])

        with ThreadPoolExecutor(len(QUESTIONS) * PARTITIONS) as asking:
            told = [asking.submit(ask, q, p) for q in QUESTIONS for p in range(PARTITIONS)]
            sending.wait()
            time.sleep(0.3)  # time for the requests to arrive: a paused process cannot report that
            os.kill(brokers[1].pid, signal.SIGCONT)
            for one in told:
                end, answer = one.result()
                assert answer is None or answer >= end
    finally:
        os.kill(brokers[1].pid, signal.SIGCONT)
