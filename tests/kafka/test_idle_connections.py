"""Thousands of idle connections to one broker process, each of which sends a request in the end.

The clients are in the test's process. They connect from several addresses, since one has 28,000 ports by default.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from kio.index import load_response_schema
from tests.kafka.kio_client import LENGTH_BYTES, framed, parsed, request_of
from tests.kafka.test_serving_process import Serving, serving

from tidelog.services.doors.open_files import raise_open_files

API_VERSIONS = 18
ADDRESSES = 8
IDLE_BYTES_MAX = 16 << 10
"""Memory of the broker for an idle connection, that of the kernel not counted."""
ANSWERED_BYTES_MAX = 20 << 10
"""The same after a request."""
WAIT_S = 60.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Serving]:
    with serving(tmp_path, "--listeners", "PLAINTEXT://127.0.0.1:0", "--connections-max-idle-ms", "1d") as started:
        yield started


def test_a_thousand_idle_connections_are_answered(broker: Serving) -> None:
    assert_idle_connections_are_answered(broker, 1_000)


@pytest.mark.soak
def test_ten_thousand_idle_connections_are_answered(broker: Serving) -> None:
    assert_idle_connections_are_answered(broker, 10_000)


def assert_idle_connections_are_answered(broker: Serving, count: int) -> None:
    assert raise_open_files() > count, "the limit of open files of this process is too low for the test"
    with connected(broker, 50) as warm:
        for number, each in enumerate(warm):
            ask(each, number)
            assert answered(each) == number
    before = memory_bytes(broker)
    with connected(broker, count) as clients:
        ask(clients[-1], 7)
        assert answered(clients[-1]) == 7, "so all before it are accepted, too"
        idle = (memory_bytes(broker) - before) / count
        for number, each in enumerate(clients):
            ask(each, number)
        assert [answered(each) for each in clients] == list(range(count))
        after = (memory_bytes(broker) - before) / count
    told = f"{count} connections: {idle:,.0f} bytes for each, {after:,.0f} after a request"
    assert idle < IDLE_BYTES_MAX, told
    assert after < ANSWERED_BYTES_MAX, told
    print(told)


@contextmanager
def connected(broker: Serving, count: int) -> Iterator[list[socket.socket]]:
    """Connections from several addresses."""
    there = ("127.0.0.1", broker.port("PLAINTEXT"))
    with ExitStack() as stack:
        sources = ((f"127.0.0.{1 + number % ADDRESSES}", 0) for number in range(count))
        yield [stack.enter_context(socket.create_connection(there, WAIT_S, source)) for source in sources]


def ask(client: socket.socket, number: int) -> None:
    client.sendall(framed(request_of(API_VERSIONS, 0), number))


def answered(client: socket.socket) -> int:
    """The number of the request that the next answer belongs to."""
    size = int.from_bytes(exactly(client, LENGTH_BYTES), "big")
    number, told = parsed(exactly(client, size), load_response_schema(API_VERSIONS, 0))
    assert told.error_code == 0
    return number


def exactly(client: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        piece = client.recv(count - len(got))
        assert piece, "the broker closed the connection"
        got += piece
    return got


def memory_bytes(broker: Serving) -> int:
    """The resident memory of the broker that is its own."""
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) << 10
