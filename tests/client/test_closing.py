"""Closing takes no longer than its bound, for any behaviour of the broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.attempts import attempts, quicker_than
from tests.client.relay import Answered, Relay

from tidelog.client import Consumer, ConsumerOptions, Producer, ProducerOptions
from tidelog.client.producer import ABANDON_S
from tidelog.storage.errors import Unavailable

SLACK_S = 2.0
"""Extra time for a busy machine."""
CLOSE_S = 1.0


class Hanging:
    """Delays a relay's answers until the test is over."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.over = threading.Event()

    def __call__(self, seen: Answered) -> bool:
        if "/records" not in seen.path and seen.path != "/v1/fetch":
            return False
        self.asked.set()
        return self.over.wait(60)


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    found = Hanging()
    yield found
    found.over.set()


def test_a_consumer_closes_while_its_broker_hangs(broker: str, topic: str, hanging: Hanging) -> None:
    with Relay(broker, lose=hanging).running() as relay:
        for attempt in attempts():
            hanging.asked.clear()
            consumer = Consumer(relay.url, topic, options=ConsumerOptions(close_timeout_s=CLOSE_S))
            assert consumer.poll(timeout_s=0) is None
            assert hanging.asked.wait(20)
            with attempt, quicker_than(CLOSE_S + SLACK_S, "closing"):
                consumer.close()
        hanging.over.set()


def test_a_consumer_closes_while_its_broker_is_down(broker: str, topic: str) -> None:
    for attempt in attempts():
        with Relay(broker).running() as relay:
            consumer = Consumer(relay.url, topic, options=ConsumerOptions(close_timeout_s=CLOSE_S))
        assert consumer.poll(timeout_s=0.3) is None  # the fetches wait for their next attempt
        with attempt, quicker_than(CLOSE_S + SLACK_S, "closing"):
            consumer.close()


def test_a_producer_closes_while_its_broker_hangs_and_says_what_is_unknown(
    broker: str, topic: str, hanging: Hanging
) -> None:
    with Relay(broker, lose=hanging).running() as relay:
        for attempt in attempts():
            hanging.asked.clear()
            producer = Producer(relay.url, topic, ProducerOptions(close_timeout_s=CLOSE_S))
            producer.send(b"x", partition=0)
            assert hanging.asked.wait(20)
            with attempt, quicker_than(CLOSE_S + ABANDON_S + SLACK_S, "closing"):
                _fail_to_close(producer, "1 records were not answered within 1 s: it is unknown")
        hanging.over.set()
    producer.close()


def test_a_producer_closes_while_its_broker_is_down(broker: str, topic: str) -> None:
    for attempt in attempts():
        with Relay(broker).running() as relay:
            producer = Producer(relay.url, topic, ProducerOptions(close_timeout_s=CLOSE_S))
        producer.send(b"x", partition=0)
        with attempt, quicker_than(CLOSE_S + ABANDON_S + SLACK_S, "closing"):
            _fail_to_close(producer, "not answered within 1 s")


def _fail_to_close(producer: Producer, told: str) -> None:
    with pytest.raises(Unavailable, match=told):
        producer.close()
