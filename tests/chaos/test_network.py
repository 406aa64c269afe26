"""The links that faults use, in front of an echo server."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from infra.loopback_ports import free_port, free_ports
from tests.chaos.network import Condition, LinkPorts, Network

ANSWER_S_MAX = 10.0
SILENCE_S = 0.3
DELAY_S = 0.2


class Echo(socketserver.BaseRequestHandler):
    """Answers every piece with itself, and keeps it."""

    heard: ClassVar[list[bytes]] = []

    def handle(self) -> None:
        while piece := self.request.recv(1_000):
            self.heard.append(piece)
            self.request.sendall(piece)


class EchoServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


@pytest.fixture
def port(tmp_path: Path) -> Iterator[tuple[int, Network]]:
    """A link to a server, and its network."""
    Echo.heard = []
    with EchoServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        listen = free_port()
        with Network({"a>b": LinkPorts(listen, server.server_address[1])}, tmp_path / "log") as network:
            yield listen, network
        server.shutdown()


def connected(listen: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", listen), timeout=ANSWER_S_MAX)


def is_over(client: socket.socket) -> bool:
    """Whether the connection was reset, or ended normally."""
    try:
        return client.recv(100) == b""
    except ConnectionResetError:
        return True


def test_an_open_link_passes_everything(port: tuple[int, Network]) -> None:
    with connected(port[0]) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"


def test_a_refusing_link_resets_open_and_new_connections(port: tuple[int, Network]) -> None:
    listen, network = port
    with connected(listen) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"
        network.set("a>b", Condition.REFUSED)
        assert is_over(client)
    with connected(listen) as client:
        assert is_over(client)


def test_a_silent_link_holds_everything_back_and_loses_nothing(port: tuple[int, Network]) -> None:
    listen, network = port
    network.set("a>b", Condition.SILENT)
    with connected(listen) as client:
        client.settimeout(SILENCE_S)
        client.sendall(b"late")
        with pytest.raises(TimeoutError):
            client.recv(100)
        assert Echo.heard == []
        network.heal()
        client.settimeout(ANSWER_S_MAX)
        assert client.recv(100) == b"late"


def test_a_deaf_link_lets_the_request_through_and_no_answer(port: tuple[int, Network]) -> None:
    listen, network = port
    network.set("a>b", Condition.DEAF)
    with connected(listen) as client:
        client.sendall(b"done")
        assert is_over(client)
    assert Echo.heard == [b"done"]


def test_a_failing_link_answers_503_and_passes_nothing(port: tuple[int, Network]) -> None:
    listen, network = port
    network.set("a>b", Condition.FAILING)
    with connected(listen) as client:
        client.sendall(b"PUT /x HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 503 ")
    assert Echo.heard == []


def test_a_slow_link_delays(port: tuple[int, Network]) -> None:
    listen, network = port
    network.set("a>b", Condition.OPEN, DELAY_S)
    with connected(listen) as client:
        began = time.monotonic()
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"
        assert time.monotonic() - began >= DELAY_S


def test_a_link_to_nobody_refuses_until_somebody_listens(tmp_path: Path) -> None:
    listen, target = free_ports(2)
    with Network({"a>b": LinkPorts(listen, target)}, tmp_path / "log"):
        with connected(listen) as first:
            assert is_over(first)
        await_refusal(listen)
        with EchoServer(("127.0.0.1", target), Echo) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            with await_connection(listen) as client:
                client.sendall(b"hello")
                assert client.recv(100) == b"hello"
            server.shutdown()


def await_refusal(listen: int) -> None:
    give_up_at = time.monotonic() + ANSWER_S_MAX
    while time.monotonic() < give_up_at:
        try:
            connected(listen).close()
        except ConnectionRefusedError:
            return
    pytest.fail("the link goes on accepting")


def await_connection(listen: int) -> socket.socket:
    give_up_at = time.monotonic() + ANSWER_S_MAX
    while time.monotonic() < give_up_at:
        try:
            return connected(listen)
        except ConnectionRefusedError:
            continue
    pytest.fail("the link does not accept again")
