"""A client that knows several brokers continues with the next one when one fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tidelog.client import Admin, Consumer, Producer
from tidelog.client.connection import Brokers, Connection, Request
from tidelog.storage.errors import Fenced, Invalid, Unavailable

NOBODY = "http://127.0.0.1:1"
NOT_LEADER = b'{"code":"not_leader","detail":"x","leader":"http://127.0.0.1:1"}'
FENCED = b'{"code":"fenced","detail":"x"}'


@contextmanager
def refusing(body: bytes, **headers: str) -> Iterator[tuple[str, Callable[[], int]]]:
    """A broker that answers everything with 503 and `body`. Returns its URL and its request count."""
    asked: list[str] = []

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers.get("content-length", "0")))
            self.send_response(503)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", lambda: len(asked)
        finally:
            server.shutdown()
            serving.join()


def test_addresses_are_used_in_turn() -> None:
    brokers = Brokers("10.0.0.7:8080, http://10.0.0.8:8080/")
    assert (len(brokers), brokers.current) == (2, "http://10.0.0.7:8080")
    brokers.leave("http://10.0.0.8:8080")
    assert brokers.current == "http://10.0.0.7:8080", "another thread has left it already"
    brokers.leave(brokers.current)
    assert brokers.current == "http://10.0.0.8:8080"
    brokers.leave(brokers.current)
    assert brokers.current == "http://10.0.0.7:8080"


@pytest.mark.parametrize("addresses", ["", "http://a:1,", "http://a:1,ftp://b"])
def test_an_invalid_address_is_refused(addresses: str) -> None:
    with pytest.raises(Invalid, match="HOST:PORT"):
        Brokers(addresses)


def test_a_broker_that_is_not_there_is_passed_over(broker: str, topic: str) -> None:
    addresses = f"{NOBODY},{broker}"
    with Producer(addresses, topic) as producer:
        producer.send(b"one", partition=0)
    with Consumer(addresses, topic, start="start") as consumer:
        assert [record.value for record in consumer.records(follow=False)] == [b"one"]
    with Admin(addresses) as admin:
        assert admin.topic(topic).records == 1


def test_if_none_is_there_the_error_says_so() -> None:
    with Connection(f"{NOBODY},{NOBODY}", deadline_s=0.2) as connection, pytest.raises(Unavailable, match="no broker"):
        connection.call(Request("GET", "/v1/cluster"))


def test_after_any_refusal_with_nothing_taken_the_next_broker_is_asked(broker: str) -> None:
    with refusing(NOT_LEADER, **{"Retry-After": "0"}) as (url, asked):
        with Connection(f"{url},{broker}") as connection:
            request = Request("POST", "/v1/topics", body=[memoryview(b"{}")], repeatable=False)
            with pytest.raises(Invalid):
                connection.call(request)
        assert asked() == 1


def test_an_unknown_outcome_is_sent_again_only_if_that_is_harmless(broker: str) -> None:
    with refusing(FENCED) as (url, asked), Connection(f"{url},{broker}") as connection:
        assert connection.call(Request("GET", "/v1/cluster")).status == 200
        with Connection(f"{url},{broker}") as another, pytest.raises(Fenced):
            another.call(Request("GET", "/v1/cluster", repeatable=False))
        assert asked() == 2
