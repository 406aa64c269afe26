"""Three `tidelog serve`, some of which lose only etcd: no read gives an older end than what another broker acknowledged
before the read began, and the clients find the new leaders."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
from tests.end_to_end.broker_cluster import SHARDS, BrokerCluster

from tidelog.client import Consumer

PARTITIONS = SHARDS
ROUNDS = 2
SEEN_WITHIN_S = 10.0


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
        "log": f"{url}/v1/topics/{topic}/log?partitions={partition}",
        "fetch": f"{path}/records?offset={acknowledged - 1}",
        "poll": f"{path}/records?offset={acknowledged - 1}&wait_ms=100",
    }
    answer = httpx.get(ways[question], timeout=20)
    if answer.status_code == 503:
        assert answer.json()["code"] in ("not_leader", "leader_unknown", "unavailable"), answer.text
        return None
    assert answer.status_code == 200, answer.text
    told = answer.json()
    if question == "log":
        (told,) = told["partitions"]
    end: int = told.get("offset") or told.get("next_offset") or told["high_watermark"]
    return end


QUESTIONS = ("latest", "time", "log", "fetch", "poll")


def test_brokers_that_lose_etcd_alone_give_no_older_end_and_consumers_continue(whole: BrokerCluster) -> None:
    """Two of three are cut off: each forwards to the other, as far as it knows."""
    brokers, topic = whole.brokers, "truth"
    for partition in range(PARTITIONS):
        append(brokers[0].url, topic, partition)
    for n in (1, 2):
        whole.ways[n].cut()
    whole.await_leaders({0})
    with ThreadPoolExecutor(len(QUESTIONS) * PARTITIONS * 2) as asking:
        for _ in range(ROUNDS):
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
    assert seen == PARTITIONS * (1 + ROUNDS)
    assert time.monotonic() - began_s < SEEN_WITHIN_S


def test_a_consumer_that_waits_when_its_broker_loses_etcd_gets_every_record_within_seconds(
    whole: BrokerCluster,
) -> None:
    brokers, topic = whole.brokers, "followed"
    for partition in range(PARTITIONS):
        append(brokers[0].url, topic, partition)
    addresses = ",".join(brokers[n].url for n in (1, 2, 0))
    with Consumer(addresses, topic, start="end") as consumer:
        assert consumer.poll(timeout_s=0.2) is None
        for n in (1, 2):
            whole.ways[n].cut()
        whole.await_leaders({0})
        began_s = time.monotonic()
        acknowledged = [append(brokers[0].url, topic, n % PARTITIONS) for n in range(12)]
        seen = 0
        while seen < len(acknowledged):
            batch = consumer.poll(timeout_s=1.0)
            seen += batch.records.num_rows if batch else 0
            assert time.monotonic() - began_s < SEEN_WITHIN_S, f"{seen} of {len(acknowledged)}"


def test_requests_that_waited_in_a_paused_broker_are_answered_by_the_later_state(
    whole: BrokerCluster,
) -> None:
    brokers, topic = whole.brokers, "paused"
    for partition in range(PARTITIONS):
        append(brokers[0].url, topic, partition)
    os.kill(brokers[1].pid, signal.SIGSTOP)
    try:
        whole.await_leaders({0, 2})
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
