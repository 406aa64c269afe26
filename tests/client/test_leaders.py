"""A producer sends to the leader of a partition, and to the given address where that is not possible.

The cluster is one broker behind two relays: `given` is the address that the program knows, and it changes the answer of
``/v1/cluster`` so that `leader`, the other relay, leads every shard.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.attempts import attempts, quicker_than
from tests.client.relay import Answered, Relay

from tidelog.client import Admin, Consumer, Delivered, Producer, ProducerOptions, connection
from tidelog.storage.errors import Unavailable

NOT_THERE = "http://127.0.0.1:1"


def led_from(address: str) -> Callable[[bytes], bytes]:
    """Changes a description of the cluster: another broker, at `address`, leads every shard."""

    def change(body: bytes) -> bytes:
        if not body.startswith(b'{"version"'):
            return body
        document = json.loads(body)
        cluster = document["cluster"]
        cluster["brokers"] += [{**cluster["brokers"][0], "broker": "leader", "address": address}]
        cluster["shards"] = [{**shard, "leader": "leader"} for shard in cluster["shards"]]
        return json.dumps(document).encode()

    return change


@contextmanager
def given(broker: str, leader: str) -> Iterator[Relay]:
    with Relay(broker, change=led_from(leader)).running() as relay:
        yield relay


def produces(relay: Relay) -> list[Answered]:
    return [seen for seen in list(relay.answered) if seen.path.partition("?")[0].endswith("/records")]


def send(address: str, topic: str, values: list[bytes], options: ProducerOptions | None = None) -> list[Delivered]:
    delivered: list[Delivered] = []
    with Producer(address, topic, options, on_delivery=delivered.append) as producer:
        for value in values:
            producer.send(value, partition=0)
            producer.flush()
    return delivered


def stored(broker: str, topic: str) -> list[bytes | None]:
    with Consumer(broker, topic, partitions=[0]) as consumer:
        return [record.value for record in consumer.records(follow=False)]


def test_records_go_to_the_leader(broker: str, topic: str) -> None:
    with Relay(broker).running() as leader, given(broker, leader.url) as relay:
        send(relay.url, topic, [b"one", b"two"])
        assert (len(produces(leader)), len(produces(relay))) == (2, 0)
    assert stored(broker, topic) == [b"one", b"two"]


def test_a_leader_that_cannot_be_reached_is_left_alone(broker: str, topic: str) -> None:
    with given(broker, NOT_THERE) as relay:
        send(relay.url, topic, [b"one", b"two"])
        assert len(produces(relay)) == 2
    assert stored(broker, topic) == [b"one", b"two"]


def test_a_lost_answer_of_the_leader_makes_no_duplicate(broker: str, topic: str) -> None:
    with Relay(broker, lose=lambda seen: True).running() as leader, given(broker, leader.url) as relay:
        delivered = send(relay.url, topic, [b"one", b"two"])
        assert (len(produces(leader)), len(produces(relay))) == (1, 2), "it is left alone after the first loss"
    assert [one.duplicate for one in delivered] == [True, False]
    assert stored(broker, topic) == [b"one", b"two"]


def test_without_a_sequence_a_lost_answer_of_the_leader_is_not_sent_again(broker: str, topic: str) -> None:
    with (
        Relay(broker, lose=lambda seen: True).running() as leader,
        given(broker, leader.url) as relay,
        pytest.raises(Unavailable, match="outcome unknown"),
    ):
        send(relay.url, topic, [b"one"], ProducerOptions(acks="1"))
    assert produces(relay) == []
    assert stored(broker, topic) == [b"one"]


def test_a_leader_that_has_left_is_replaced_by_the_given_address(broker: str, topic: str) -> None:
    with given(broker, NOT_THERE) as relay:
        with Relay(broker).running() as leader:
            relay.change = led_from(leader.url)
            producer = Producer(relay.url, topic)
            producer.send(b"one", partition=0)
            producer.flush()
            assert len(produces(leader)) == 1
        producer.send(b"two", partition=0)
        producer.close()
        assert len(produces(relay)) == 1
    assert stored(broker, topic) == [b"one", b"two"]


def test_a_leader_that_does_not_answer_is_left_within_seconds(
    broker: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "ANSWER_TIMEOUT_MIN_S", 0.3)
    over = threading.Event()
    with Relay(broker, lose=lambda _: over.wait(60)).running() as leader, given(broker, leader.url) as relay:
        delivered = send(relay.url, topic, [b"one"])
        over.set()
    assert [one.duplicate for one in delivered] == [True]
    assert stored(broker, topic) == [b"one"]


def test_closing_breaks_off_a_request_to_the_leader(broker: str, topic: str) -> None:
    asked, over = threading.Event(), threading.Event()

    def hang(_: Answered) -> bool:
        asked.set()
        return over.wait(60)

    with Relay(broker, lose=hang).running() as leader, given(broker, leader.url) as relay:
        for attempt in attempts():
            asked.clear()
            producer = Producer(relay.url, topic, ProducerOptions(close_timeout_s=0.5))
            producer.send(b"one", partition=0)
            assert asked.wait(20)
            with attempt, quicker_than(0.5 + 2.0, "closing"), pytest.raises(Unavailable, match="unknown which"):
                producer.close()
        over.set()


def test_a_single_broker_is_reached_by_the_given_address(broker: str, topic: str) -> None:
    with Relay(broker).running() as relay, Admin(broker) as admin:
        assert len(admin.cluster().cluster.brokers) == 1
        send(relay.url, topic, [b"one"])
        assert len(produces(relay)) == 1
