"""The relay of the tests: a client that leaves is normal, and a broker that leaves is reported."""

from __future__ import annotations

import socket
import threading
from urllib.parse import urlsplit

import pytest
from tests.client.relay import Relay
from tests.end_to_end.broker_process import wait_until

REQUEST = b"GET /health HTTP/1.1\r\nHost: relay\r\n\r\n"


def client_of(relay: Relay) -> socket.socket:
    return socket.create_connection(("127.0.0.1", urlsplit(relay.url).port or 0), timeout=10)


def serves() -> bool:
    """Whether a thread of the relay runs."""
    return any("process_request_thread" in thread.name for thread in threading.enumerate())


def test_a_client_that_leaves_before_its_answer_is_no_error(broker: str, capfd: pytest.CaptureFixture[str]) -> None:
    left = threading.Event()

    def after_the_client_has_left(body: bytes) -> bytes:
        left.wait(10)
        return body * (1 << 16)  # more than the socket takes at once

    with Relay(broker, change=after_the_client_has_left).running() as relay, client_of(relay) as client:
        client.sendall(REQUEST)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # close resets the connection
        client.close()
        left.set()
        wait_until(lambda: bool(relay.answered) and not serves(), 30.0)
    assert capfd.readouterr().err == ""


def test_a_broker_that_leaves_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        closed_port = listening.getsockname()[1]
    with Relay(f"http://127.0.0.1:{closed_port}").running() as relay, client_of(relay) as client:
        client.sendall(REQUEST)
        assert client.recv(1) == b""
        wait_until(lambda: not serves(), 30.0)
    assert "BrokerLeft" in capfd.readouterr().err
