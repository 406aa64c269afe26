"""Consumer instances of Kafka's REST interface over three brokers: each call goes to another broker, and brokers are
killed. What was answered is counted against the log."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, deque
from collections.abc import Collection, Sequence
from itertools import count
from typing import Any

import httpx
from tests.end_to_end.broker_cluster import LEASE_S, BrokerCluster

from tidelog.client import Admin

JSON = "application/vnd.kafka.json.v2+json"
MANAGEMENT = "application/vnd.kafka.v2+json"
PARTITIONS = 6
RECORDS = 2_000
RETRIABLE = 50003
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


def create_topic(cluster: BrokerCluster, topic: str) -> None:
    with Admin(cluster.urls[0]) as admin:
        admin.create_topic(topic, partitions=PARTITIONS)


async def start_consumer(calls: RoundRobin, topic: str, name: str) -> Consumer:
    """A consumer of the group that has the name of its topic."""
    config = {"name": name, "format": "json", "auto.offset.reset": "earliest"}
    created = (await calls.call("POST", f"/consumers/{topic}", config)).json()
    assert created["instance_id"] == name
    path = f"/consumers/{topic}/instances/{name}"
    assert (await calls.call("POST", f"{path}/subscription", {"topics": [topic]})).status_code == 204
    return Consumer(calls, path)


async def produce_all(calls: RoundRobin, topic: str) -> dict[int, Place]:
    """The place of each record, by its number. A record whose partition had an error is sent again."""
    places: dict[int, Place] = {}
    waiting = deque(range(RECORDS))
    while waiting:
        numbers = [waiting.popleft() for _ in range(min(20, len(waiting)))]
        records = [{"key": n, "value": {"n": n, "text": "x" * (600 + n % 900)}} for n in numbers]
        answer = await calls.call("POST", f"/topics/{topic}", {"records": records})
        assert answer.status_code == 200, answer.text
        for n, place in zip(numbers, answer.json()["offsets"], strict=True):
            if place.get("error_code"):
                assert place["error_code"] == RETRIABLE, place
                waiting.append(n)
            else:
                places[n] = (place["partition"], place["offset"])
    return places


async def the_log(url: str, topic: str) -> dict[Place, Any]:
    found: dict[Place, Any] = {}
    async with httpx.AsyncClient(base_url=url, timeout=20) as http:
        for partition in range(PARTITIONS):
            offset, high = 0, 1
            while offset < high:
                page = (await http.get(f"/v1/topics/{topic}/partitions/{partition}/records?offset={offset}")).json()
                for record in page["records"]:
                    found[partition, record["offset"]] = json.loads(record["value"])
                offset, high = page["next_offset"], page["high_watermark"]
    return found


async def read_up_to(places: Collection[Place], consumers: Sequence[Consumer]) -> None:
    """Return when the consumers have read all of `places`. An empty answer is no sign of that: a broker may be about to
    take over."""
    give_up_at = time.monotonic() + 60
    while missing := set(places) - {place for consumer in consumers for place in consumer.values}:
        assert time.monotonic() < give_up_at, f"{len(missing)} records are left out, first {min(missing)}"
        await asyncio.sleep(0.05)


async def test_brokers_die_and_no_record_is_left_out(whole: BrokerCluster) -> None:
    topic = "dying"
    create_topic(whole, topic)
    calls = RoundRobin(whole.urls)
    consumers = [await start_consumer(calls, topic, name) for name in ("one", "two")]
    running = [asyncio.ensure_future(consumer.run()) for consumer in consumers]
    producing = asyncio.ensure_future(produce_all(calls, topic))
    for victim in whole.brokers:
        await asyncio.sleep(0.4)
        await asyncio.to_thread(victim.kill)
        await asyncio.sleep(LEASE_S + 0.2)
        await asyncio.to_thread(victim.start)
    places = await producing
    log = await the_log(whole.urls[0], topic)
    await read_up_to(log, consumers)
    for consumer in consumers:
        consumer.stop = True
    await asyncio.gather(*running)
    answered: dict[Place, Any] = {}
    for consumer in consumers:
        answered.update(consumer.values)
    assert answered == log
    assert all(log[place]["n"] == n for n, place in places.items())
    assert len(places) == RECORDS
    assert calls.failed
    await calls.aclose()


async def test_while_nothing_fails_each_record_is_answered_once(whole: BrokerCluster) -> None:
    topic = "calm"
    create_topic(whole, topic)
    calls = RoundRobin(whole.urls)
    places = await produce_all(calls, topic)
    consumer = await start_consumer(calls, topic, "alone")
    running = [asyncio.ensure_future(consumer.run()) for _ in range(3)]
    await read_up_to(places.values(), [consumer])
    consumer.stop = True
    await asyncio.gather(*running)
    assert set(consumer.answers) == set(places.values())
    assert set(consumer.answers.values()) == {1}
    assert consumer.values == await the_log(whole.urls[1], topic)
    assert (await calls.call("DELETE", f"/consumers/{topic}/instances/alone")).status_code == 204
    answer = await calls.call("GET", f"/consumers/{topic}/instances/alone/subscription")
    assert answer.json()["error_code"] == 40403
    await calls.aclose()
