"""The client's connections: kept, told to be gone, given up; every failure is one of httpx's."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest

from tidelog.client.plain_transport import LARGE_BYTES, PlainTransport, body_of
from tidelog.storage.runtime import Runtime

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
FIN_WAIT_2 = 5
"""Linux' number of the state in which the other side knows that nothing more comes."""
Served = Callable[[socket.socket], None]


class SetClock:
    """Stands where it is put."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing waits here")


@contextmanager
def serving(*connections: Served) -> Iterator[str]:
    """A server that serves so many connections, one after the other, each in its way; its URL."""
    failures: list[BaseException] = []

    def serve() -> None:
        for served in connections:
            link, _ = listening.accept()
            link.settimeout(20)
            with link:
                try:
                    served(link)
                except OSError as error:
                    failures.append(error)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(20)
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join(30)
        assert not thread.is_alive()
    assert not failures


def asked(link: socket.socket) -> bytes:
    """A request's head."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        part = link.recv(1)
        assert part, "the client closed"
        head += part
    return head


def ended(link: socket.socket) -> None:
    """Wait until the client closes."""
    assert link.recv(1) == b""


def answering(*answers: bytes) -> Served:
    """Each request gets the next answer; then the connection stays open until the client closes it."""

    def serve(link: socket.socket) -> None:
        for answer in answers:
            asked(link)
            link.sendall(answer)
        ended(link)

    return serve


@contextmanager
def client(clock: SetClock | None = None) -> Iterator[httpx.Client]:
    transport = PlainTransport(clock or Runtime().clock, connections_max=4, idle_max_s=30.0)
    with httpx.Client(transport=transport, timeout=20, trust_env=False) as http:
        yield http


def test_a_connection_is_kept_for_the_next_request() -> None:
    large = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % LARGE_BYTES + bytes(LARGE_BYTES)
    with serving(answering(OK, OK, large, OK)) as url, client() as http:
        for size in (2, 2, LARGE_BYTES, 2):
            assert len(body_of(http.get(url))) == size


@pytest.mark.parametrize("size", [0, 1, 70_000, 9_000_001])
def test_a_body_comes_whole(size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-One: 1\r\n\r\n" % size
    with serving(answering(head + body[:size])) as url, client() as http:
        answer = http.get(f"{url}/a%20b?c=d")
        assert body_of(answer) == body[:size]
        assert answer.headers["x-one"] == "1"


def test_a_chunked_body_and_a_coded_one_are_read() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
    with serving(answering(chunked, OK)) as url, client() as http:
        assert http.get(url).content == b"abc"
        assert http.get(url).content == b"ok"


def test_what_is_sent_arrives() -> None:
    seen: list[bytes] = []

    def serve(link: socket.socket) -> None:
        seen.append(asked(link))
        while len(seen[-1]) < 6:
            seen[-1] += link.recv(6)
        seen.append(link.recv(6, socket.MSG_WAITALL))
        link.sendall(OK)
        ended(link)

    with serving(serve) as url, client() as http:
        http.post(f"{url}/x?y=1", content=b"abcdef", headers={"x-mine": "yes"})
    head, body = seen
    assert head.startswith(b"POST /x?y=1 HTTP/1.1\r\n")
    assert b"x-mine: yes\r\n" in head.lower()
    assert head.lower().count(b"host:") == head.lower().count(b"content-length: 6") == 1
    assert body == b"abcdef"


def test_a_connection_that_the_broker_closed_is_not_used_again() -> None:
    closed = threading.Event()

    def closing(link: socket.socket) -> None:
        asked(link)
        link.sendall(OK)
        link.shutdown(socket.SHUT_WR)
        while link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != FIN_WAIT_2:
            continue  # until the client's side has it
        closed.set()
        ended(link)

    with serving(closing, answering(OK)) as url, client() as http:
        assert http.get(url).content == b"ok"
        assert closed.wait(20)
        assert http.get(url).content == b"ok"


def test_one_that_says_close_is_not_kept() -> None:
    last = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
    with serving(answering(last), answering(OK)) as url, client() as http:
        assert http.get(url).content == b"ok"
        assert http.get(url).content == b"ok"


def test_one_that_was_idle_too_long_is_not_used() -> None:
    clock = SetClock()
    with serving(answering(OK, OK), answering(OK)) as url, client(clock) as http:
        http.get(url)
        clock.now_s = 29.0
        http.get(url)
        clock.now_s = 60.0
        assert http.get(url).content == b"ok"


def test_each_failure_is_a_transport_error() -> None:
    with client() as http, pytest.raises(httpx.ConnectError):
        http.get("http://127.0.0.1:1")
    short = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok"

    def cut(link: socket.socket) -> None:
        asked(link)
        link.sendall(short)

    def silent(link: socket.socket) -> None:
        asked(link)

    def nonsense(link: socket.socket) -> None:
        asked(link)
        link.sendall(b"no HTTP at all\r\n\r\n")

    def cut_late(link: socket.socket) -> None:
        asked(link)
        link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (LARGE_BYTES + 1) + bytes(LARGE_BYTES))

    for served in (cut, cut_late, silent, nonsense):
        with serving(served) as url, client() as http, pytest.raises(httpx.ReadError):
            http.get(url)


def test_a_broker_that_says_nothing_is_given_up() -> None:
    with serving(answering(b"")) as url, client() as http, pytest.raises(httpx.ReadTimeout):
        http.get(url, timeout=httpx.Timeout(20, read=0.05))


def test_a_refusal_before_all_was_sent_is_seen() -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"
    answered = threading.Event()

    def refuse(link: socket.socket) -> None:
        asked(link)
        link.sendall(refusal)
        answered.set()

    def chunks() -> Iterator[bytes]:
        yield b"x"
        assert answered.wait(20)
        for _ in range(40):
            yield bytes(1 << 18)

    with serving(refuse) as url, client() as http:
        answer = http.post(url, content=chunks(), headers={"content-length": str((40 << 18) + 1)})
    assert (answer.status_code, answer.content) == (413, b"no")
