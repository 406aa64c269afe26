"""A wrong address is reported at once, and given up after a bound."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from infra.loopback_ports import free_port
from tests.attempts import attempts, quicker_than
from tests.client.relay import Relay

from tidelog.client import Admin, Consumer, ConsumerOptions, Producer, ProducerOptions
from tidelog.client.connection import Connection, Request
from tidelog.storage.errors import Unavailable

CONNECT_S = 0.5
SLACK_S = 2.0

Open = Callable[[str], object]


def opened_admin(broker: str) -> object:
    with Admin(broker, connect_timeout_s=CONNECT_S) as admin:
        return admin.topics()


def opened_producer(broker: str) -> object:
    return Producer(broker, "web", ProducerOptions(connect_timeout_s=CONNECT_S))


def opened_consumer(broker: str) -> object:
    return Consumer(broker, "web", options=ConsumerOptions(connect_timeout_s=CONNECT_S))


@pytest.mark.parametrize("opened", [opened_admin, opened_producer, opened_consumer])
@pytest.mark.parametrize("addresses", [1, 3])
def test_an_address_where_nobody_listens_is_warned_of_once_and_given_up(
    caplog: pytest.LogCaptureFixture, opened: Open, addresses: int
) -> None:
    brokers = [f"http://127.0.0.1:{free_port()}" for _ in range(addresses)]
    for attempt in attempts():
        caplog.clear()
        refused = pytest.raises(Unavailable, match=r"no broker answers at .*tidelog serve")
        with attempt, quicker_than(CONNECT_S + SLACK_S, "a first connection"), refused:
            opened(",".join(brokers))
    (warning,) = [record for record in caplog.records if record.name == "tidelog.client"]
    assert warning.levelno == logging.WARNING
    assert brokers[0] in warning.getMessage()
    assert "--broker or TIDELOG_BROKER" in warning.getMessage()


class _Slow(BaseHTTPRequestHandler):
    """Answers a health request more slowly than a first connection may take."""

    def do_GET(self) -> None:
        threading.Event().wait(3 * CONNECT_S)
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class names it
        """Log nothing."""


def test_a_broker_that_is_reached_at_once_may_take_longer_over_its_first_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidelog.client.connection.ANSWER_TIMEOUT_MIN_S", 0.0)
    with HTTPServer(("127.0.0.1", free_port()), _Slow) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        host, port = server.server_address[:2]
        with Connection(f"http://{host}:{port}", deadline_s=20 * CONNECT_S, connect_timeout_s=CONNECT_S) as connection:
            answer = connection.call(Request("GET", "/v1/topics"))
        thread.join()
    assert answer.status == 200


def test_a_broker_that_was_reached_is_waited_for_until_the_deadline(
    broker: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Admin("http://127.0.0.1:1", connect_timeout_s=0.0) as admin:
        assert not admin.health().alive
    assert not caplog.records, "what is asked once fails with its error alone"
    with Relay(broker).running() as relay:
        admin = Admin(relay.url, deadline_s=1.0, connect_timeout_s=0.05)
        assert admin.topic(topic).records == 0
    began = time.monotonic()
    with pytest.raises(Unavailable):
        admin.topic(topic)
    assert time.monotonic() - began > 0.3, "longer than a first connection may take"
    assert relay.url in caplog.text
    admin.close()
