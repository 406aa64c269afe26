"""Three `tidelog serve` with etcd: any of them answers, and shards move during the requests."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from subprocess import CompletedProcess

import httpx
import pytest
from tests.components.etcd_server import EtcdServer
from tests.end_to_end.broker_process import BrokerProcess, run_tidelog, start_together, wait_until

from tidelog.client import Admin, Consumer, MembershipDescription, Producer

WAIT_S = 20.0
SHARDS = 4


@pytest.fixture(scope="module")
def brokers(etcd: EtcdServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    folder = tmp_path_factory.mktemp("cluster")
    settings = {
        "store": f"file:{folder / 'data'}",
        "etcd.endpoints": etcd.url,
        "cluster.name": f"forwarding-{uuid.uuid4().hex}",  # a worker may return to this module with another bucket
        "shards": SHARDS,
        "num.partitions": SHARDS,
        "rebalance.delay.ms": 0,
        "lease.ttl.ms": 2_000,
    }
    started = [BrokerProcess(folder, {**settings, "broker.id": f"broker-{n}"}) for n in range(3)]
    start_together(started)
    yield started
    for broker in started:
        broker.stop()


@pytest.fixture
def members(brokers: list[BrokerProcess]) -> Callable[[], MembershipDescription]:
    """The cluster as broker-0 sees it, after each shard's preferred broker leads it."""

    def look() -> MembershipDescription:
        with Admin(brokers[0].url) as admin:
            return admin.cluster().cluster

    def settled() -> bool:
        seen = look()
        return len(seen.brokers) == 3 and all(s.leader and s.leader == s.preferred for s in seen.shards)

    wait_until(settled, WAIT_S, str)
    return look


def tidelog(broker: BrokerProcess, *arguments: str) -> CompletedProcess[bytes]:
    return run_tidelog(arguments, broker=broker.url)


def test_every_broker_takes_every_partition_of_a_topic_it_did_not_make(
    brokers: list[BrokerProcess], members: Callable[[], MembershipDescription]
) -> None:
    led = {shard.leader for shard in members().shards}
    assert len(led) > 1
    for turn, broker in enumerate(brokers):
        for partition in range(SHARDS):
            path = f"{broker.url}/v1/topics/any/partitions/{partition}/records"
            produced = httpx.post(path, json={"records": [{"value": f"{turn}"}]}, timeout=20)
            assert produced.json()["partitions"][0]["base_offset"] == turn, produced.text
            fetched = httpx.get(f"{path}?offset=0", timeout=20)
            assert [record["value"] for record in fetched.json()["records"]] == [f"{n}" for n in range(turn + 1)]
            assert fetched.headers["tidelog-leader"] in {other.url for other in brokers}
    described = [httpx.get(f"{broker.url}/v1/topics/any", timeout=20).json() for broker in brokers]
    assert described[0] == described[1] == described[2]


def test_a_topic_of_many_leaders_is_written_and_followed_through_one_broker(
    brokers: list[BrokerProcess], members: Callable[[], MembershipDescription]
) -> None:
    members()
    keys = [f"key-{n}" for n in range(40)]
    lines = "".join(json.dumps({"key": key}) + "\n" for key in keys)
    path = f"{brokers[1].url}/v1/topics/many/records"
    headers = {"content-type": "application/x-ndjson"}
    produced = httpx.post(f"{path}?key_field=key", content=lines, headers=headers, timeout=20)
    assert sum(one["count"] for one in produced.json()["partitions"]) == len(keys)
    assert len(produced.json()["partitions"]) == SHARDS
    for broker in brokers:
        with httpx.stream(
            "GET",
            f"{broker.url}/v1/topics/many/records?offset=earliest&wait_ms=500",
            headers={"accept": "application/x-ndjson"},
            timeout=20,
        ) as answer:
            assert sorted(json.loads(line)["key"] for line in answer.iter_lines()) == sorted(keys)


def test_records_are_deleted_through_any_broker(
    brokers: list[BrokerProcess], members: Callable[[], MembershipDescription]
) -> None:
    members()
    under = "v1/topics/cut/partitions"
    for partition in range(SHARDS):
        records = {"records": [{"value": f"{n}"} for n in range(10)]}
        httpx.post(f"{brokers[0].url}/{under}/{partition}/records", json=records, timeout=20).raise_for_status()
    for turn, broker in enumerate(brokers, start=1):

        def delete(partition: int, url: str = broker.url, offset: int = 2 * turn) -> None:
            call = f"{url}/{under}/{partition}/delete-records"
            answer = httpx.post(call, json={"before_offset": offset}, timeout=40)
            assert (answer.status_code, answer.json()) == (200, {"log_start_offset": offset})
            refused = httpx.post(call, json={"before_offset": 11}, timeout=40)
            assert (refused.status_code, refused.json()["log_start_offset"]) == (416, offset)

        with ThreadPoolExecutor(SHARDS) as deleting:
            list(deleting.map(delete, range(SHARDS)))
    for broker in brokers:
        gone = httpx.get(f"{broker.url}/{under}/0/records?offset=5", timeout=20)
        assert (gone.status_code, gone.json()["high_watermark"]) == (416, 10)
        left = httpx.get(f"{broker.url}/{under}/0/records?offset=6", timeout=20).json()["records"]
        assert [record["value"] for record in left] == ["6", "7", "8", "9"]


def test_the_command_shows_brokers_leaders_and_balance(
    brokers: list[BrokerProcess], members: Callable[[], MembershipDescription]
) -> None:
    members()
    shown = tidelog(brokers[2], "cluster", "info")
    assert shown.returncode == 0, shown.stderr
    text = shown.stdout.decode()
    assert "healthy" in text
    assert "most 2, fewest 1, fair 1.3" in text
    for broker in brokers:
        assert broker.url in text


def test_a_drained_broker_leads_nothing_until_that_is_undone(
    brokers: list[BrokerProcess], members: Callable[[], MembershipDescription]
) -> None:
    members()
    drained = tidelog(brokers[0], "cluster", "drain", "broker-1", "--wait")
    assert drained.returncode == 0, drained.stderr
    assert drained.stdout == b"broker-1 leads no shard\n"
    assert b"0 shards to go" in drained.stderr
    assert members().led_by("broker-1") == 0
    undone = tidelog(brokers[0], "cluster", "drain", "broker-1", "--undo")
    assert undone.returncode == 0, undone.stderr
    wait_until(lambda: members().led_by("broker-1") > 0, WAIT_S, str)
    nobody = tidelog(brokers[0], "cluster", "drain", "broker-9")
    assert (nobody.returncode, nobody.stdout) == (4, b"")


def test_an_event_stream_that_is_resumed_misses_nothing_while_its_shard_moves(
    brokers: list[BrokerProcess], members: Callable[[], MembershipDescription]
) -> None:
    members()
    path = "/v1/topics/followed/partitions/0/records"
    leader_url = httpx.post(f"{brokers[0].url}{path}", json={"records": [{"value": "0"}]}, timeout=20).headers[
        "tidelog-leader"
    ]
    leader = next(n for n, broker in enumerate(brokers) if broker.url == leader_url)
    asked = brokers[(leader + 1) % 3]
    offsets = followed(asked, path)
    assert next(offsets) == 0
    for command in (("drain", f"broker-{leader}", "--wait"), ("drain", f"broker-{leader}", "--undo")):
        for _ in range(5):
            produced = httpx.post(f"{asked.url}{path}", json={"records": [{"value": "x"}]}, timeout=20)
            assert next(offsets) == produced.json()["partitions"][0]["base_offset"]
        assert tidelog(brokers[leader], "cluster", *command).returncode == 0
        produced = httpx.post(f"{asked.url}{path}", json={"records": [{"value": "x"}]}, timeout=20)
        assert next(offsets) == produced.json()["partitions"][0]["base_offset"]
    offsets.close()


def followed(broker: BrokerProcess, path: str) -> Generator[int]:
    """Offsets of a partition as an EventSource reads them: a stream that ends is resumed from its last id."""
    last_id = ""
    while True:
        headers = {"accept": "text/event-stream", **({"last-event-id": last_id} if last_id else {})}
        with httpx.stream("GET", f"{broker.url}{path}", headers=headers, timeout=20) as stream:
            name = ""
            for line in stream.iter_lines():
                assert not line.startswith("event: problem"), line
                if line.startswith("event: "):
                    name = line
                elif line.startswith("id: "):
                    last_id = line.removeprefix("id: ")
                elif line.startswith("data: ") and not name:
                    yield int(last_id)


def test_clients_continue_while_brokers_are_restarted_and_killed(
    brokers: list[BrokerProcess], members: Callable[[], MembershipDescription]
) -> None:
    members()
    addresses = ",".join(broker.url for broker in brokers)
    sent = 0
    with Producer(addresses, "going-on") as producer:

        def send(count: int) -> None:
            nonlocal sent
            for _ in range(count):
                producer.send(f"{sent}".encode(), partition=sent % SHARDS)
                sent += 1
            producer.flush()

        send(200)
        for broker in brokers:
            assert broker.stop() == 0
            send(200)
            broker.start()
            send(200)
        brokers[0].kill()
        send(200)
        brokers[0].start()
        send(200)
    with Consumer(addresses, "going-on", start="start") as consumer:
        values = [int(record.value or b"") for record in consumer.records(follow=False)]
    assert sorted(values) == list(range(sent))
