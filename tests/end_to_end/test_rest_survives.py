"""Consumer instances of Kafka's REST interface over three brokers: each call goes to another broker, and brokers are
killed. What was answered is counted against the log."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any

import httpx
import pytest
from tests.components.etcd_server import EtcdServer
from tests.end_to_end.broker_process import BrokerProcess, wait_until

from tidelog.client import Admin

JSON = "application/vnd.kafka.json.v2+json"
MANAGEMENT = "application/vnd.kafka.v2+json"
PARTITIONS = 6
RECORDS = 2_000
Place = tuple[int, int]


class RoundRobin:
    """A plain load balancer: each call goes to the next broker. A call that got no answer, or 5xx, goes to the one
    after it."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls
        self._turn = count()
        self._http = httpx.AsyncClient(timeout=20)
        self.failed = 0

    async def call(self, method: str, path: str, body: object = None, accept: str = MANAGEMENT) -> httpx.Response:
        content = None if body is None else json.dumps(body)
        kind = JSON if path.startswith("/topics") else MANAGEMENT
        ends = time.monotonic() + 30
        while True:
            url = self._urls[next(self._turn) % len(self._urls)]
            try:
                headers = {"accept": accept, "content-type": kind}
                answer = await self._http.request(method, url + path, content=content, headers=headers)
            except httpx.TransportError:
                answer = None
            if answer is not None and answer.status_code < 500:
                return answer
            assert time.monotonic() < ends, "no broker answers" if answer is None else answer.text
            self.failed += 1
            await asyncio.sleep(0.05)

    async def aclose(self) -> None:
        await self._http.aclose()


class Consumer:
    """Reads until it is told to stop. `places`: the record of each answer."""

    def __init__(self, calls: RoundRobin, path: str) -> None:
        self._calls = calls
        self._path = path
        self.stop = False
        self.values: dict[Place, Any] = {}
        self.answers: Counter[Place] = Counter()

    async def run(self) -> None:
        while True:
            stopping = self.stop
            path = f"{self._path}/records?timeout=300&max_bytes=20000"
            answer = await self._calls.call("GET", path, accept=JSON)
            assert answer.status_code == 200, answer.text
            for record in answer.json():
                place = (record["partition"], record["offset"])
                self.answers[place] += 1
                self.values[place] = record["value"]
            if stopping and not answer.json():
                return


@pytest.fixture
def brokers(etcd: EtcdServer, tmp_path: Any, request: pytest.FixtureRequest) -> Iterator[list[BrokerProcess]]:
    with ExitStack() as stack:
        started = [
            BrokerProcess(
                tmp_path,
                {
                    "store": f"file:{tmp_path / 'data'}",
                    "etcd.endpoints": etcd.url,
                    "cluster.name": request.node.name[:40],
                    "broker.id": f"broker-{number}",
                    "shards": 3,
                    "lease.ttl.ms": 1_000,
                    "rebalance.delay.ms": 0,
                    "peer.secret": "secret-of-the-rest-cluster",
                },
            )
            for number in range(3)
        ]
        for one in started:
            stack.callback(one.stop)
            one.start()
        with Admin(started[0].url) as admin:
            wait_until(lambda: all(shard.leader for shard in admin.cluster().cluster.shards), 30.0)
            admin.create_topic("t", partitions=PARTITIONS)
        yield started


async def start_consumer(calls: RoundRobin, name: str) -> Consumer:
    config = {"name": name, "format": "json", "auto.offset.reset": "earliest"}
    created = (await calls.call("POST", "/consumers/g", config)).json()
    assert created["instance_id"] == name
    path = f"/consumers/g/instances/{name}"
    assert (await calls.call("POST", f"{path}/subscription", {"topics": ["t"]})).status_code == 204
    return Consumer(calls, path)


async def produce_all(calls: RoundRobin) -> dict[int, Place]:
    """The place of each record, by its number."""
    places = {}
    for first in range(0, RECORDS, 20):
        records = [{"key": n, "value": {"n": n, "text": "x" * (600 + n % 900)}} for n in range(first, first + 20)]
        answer = await calls.call("POST", "/topics/t", {"records": records})
        assert answer.status_code == 200, answer.text
        for n, place in zip(range(first, first + 20), answer.json()["offsets"], strict=True):
            places[n] = (place["partition"], place["offset"])
    return places


async def the_log(url: str) -> dict[Place, Any]:
    found: dict[Place, Any] = {}
    async with httpx.AsyncClient(base_url=url, timeout=20) as http:
        for partition in range(PARTITIONS):
            offset, high = 0, 1
            while offset < high:
                page = (await http.get(f"/v1/topics/t/partitions/{partition}/records?offset={offset}")).json()
                for record in page["records"]:
                    found[partition, record["offset"]] = json.loads(record["value"])
                offset, high = page["next_offset"], page["high_watermark"]
    return found


async def test_brokers_die_and_no_record_is_left_out(brokers: list[BrokerProcess]) -> None:
    calls = RoundRobin([one.url for one in brokers])
    consumers = [await start_consumer(calls, name) for name in ("one", "two")]
    running = [asyncio.ensure_future(consumer.run()) for consumer in consumers]
    producing = asyncio.ensure_future(produce_all(calls))
    for victim in brokers:
        await asyncio.sleep(0.7)
        await asyncio.to_thread(victim.kill)
        await asyncio.sleep(1.5)
        await asyncio.to_thread(victim.start)
    places = await producing
    for consumer in consumers:
        consumer.stop = True
    await asyncio.gather(*running)
    log = await the_log(brokers[0].url)
    answered: dict[Place, Any] = {}
    for consumer in consumers:
        answered.update(consumer.values)
    assert answered == log
    assert all(log[place]["n"] == n for n, place in places.items())
    assert len(places) == RECORDS
    assert calls.failed
    await calls.aclose()


async def test_while_nothing_fails_each_record_is_answered_once(brokers: list[BrokerProcess]) -> None:
    calls = RoundRobin([one.url for one in brokers])
    places = await produce_all(calls)
    consumer = await start_consumer(calls, "alone")
    consumer.stop = True
    await asyncio.gather(consumer.run(), consumer.run(), consumer.run())
    assert set(consumer.answers) == set(places.values())
    assert set(consumer.answers.values()) == {1}
    assert consumer.values == await the_log(brokers[1].url)
    assert (await calls.call("DELETE", "/consumers/g/instances/alone")).status_code == 204
    answer = await calls.call("GET", "/consumers/g/instances/alone/subscription")
    assert answer.json()["error_code"] == 40403
    await calls.aclose()
