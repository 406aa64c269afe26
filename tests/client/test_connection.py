"""A client's connections: kept, dropped when the broker has closed them, and broken off. Every failure is Tidelog's."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from tidelog.client.connection import Answer, Connection, Request, Unreachable
from tidelog.storage.errors import TooLarge, Unavailable
from tidelog.storage.runtime import Clock, Runtime

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


class Client:
    """Sends each request once."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def get(self, path: str = "/", answer_timeout_s: float = 20.0) -> Answer:
        return self.connection.call(Request("GET", path, answer_timeout_s=answer_timeout_s), deadline_s=0.0)

    def post(self, path: str, body: Sequence[memoryview], **headers: str) -> Answer:
        query: dict[str, str | int] = {"y": 1}
        request = Request("POST", path, query=query, headers=headers, body=body)
        return self.connection.call(request, deadline_s=0.0)


@contextmanager
def client(url: str, clock: Clock | None = None) -> Iterator[Client]:
    runtime = Runtime() if clock is None else Runtime(clock=clock)
    with Connection(url, runtime=runtime, pool=4) as connection:
        yield Client(connection)


def test_a_connection_is_kept_for_the_next_request() -> None:
    with serving(answering(OK, OK, OK)) as url, client(url) as http:
        assert [http.get().body for _ in range(3)] == [b"ok"] * 3


@pytest.mark.parametrize("size", [0, 1, 70_000, 9_000_001])
def test_a_body_comes_whole(size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-One: 1\r\n\r\n" % size
    with serving(answering(head + body[:size])) as url, client(url) as http:
        answer = http.get("/a%20b")
        assert answer.body == body[:size]
        assert answer.headers["x-one"] == "1"


def test_a_chunked_body_is_read() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
    with serving(answering(chunked, OK)) as url, client(url) as http:
        assert http.get().body == b"abc"
        assert http.get().body == b"ok"


def test_a_request_arrives_as_it_was_sent() -> None:
    seen: list[bytes] = []

    def serve(link: socket.socket) -> None:
        seen.append(asked(link))
        body = b""
        while len(body) < 20_006:
            body += link.recv(20_006 - len(body))
        seen.append(body)
        link.sendall(OK)
        ended(link)

    pieces = [memoryview(piece) for piece in (b"ab", b"c", bytes(20_000), b"def")]
    with serving(serve) as url, client(f"{url}/below/") as http:
        http.post("/a%2Fb%2E", pieces, **{"x-mine": "yes"})
    head, body = seen
    assert head.startswith(b"POST /below/a%2Fb%2E?y=1 HTTP/1.1\r\n")
    assert b"x-mine: yes\r\n" in head.lower()
    assert head.lower().count(b"host:") == head.lower().count(b"content-length: 20006") == 1
    assert body == b"abc" + bytes(20_000) + b"def"


def test_user_and_password_of_the_url_are_sent() -> None:
    seen: list[bytes] = []

    def serve(link: socket.socket) -> None:
        seen.append(asked(link))
        link.sendall(OK)
        ended(link)

    with serving(serve) as url, client(url.replace("http://", "http://me:a%40b@")) as http:
        http.get()
    assert b"authorization: basic " + base64.b64encode(b"me:a@b").lower() in seen[0].lower()


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

    with serving(closing, answering(OK)) as url, client(url) as http:
        assert http.get().body == b"ok"
        assert closed.wait(20)
        assert http.get().body == b"ok"


def test_one_that_says_close_is_not_kept() -> None:
    last = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
    with serving(answering(last), answering(OK)) as url, client(url) as http:
        assert http.get().body == b"ok"
        assert http.get().body == b"ok"


def test_one_that_was_idle_too_long_is_not_used() -> None:
    clock = SetClock()
    with serving(answering(OK, OK), answering(OK)) as url, client(url, clock) as http:
        http.get()
        clock.now_s = 29.0
        http.get()
        clock.now_s = 60.0
        assert http.get().body == b"ok"


def test_a_broker_that_is_not_there_is_unreachable() -> None:
    for url in ("http://127.0.0.1:1", "https://127.0.0.1:1"):
        with client(url) as http, pytest.raises(Unreachable, match=r"\(\[Errno 111\] Connection refused\)"):
            http.get()


def test_a_broker_without_tls_is_not_reached_by_https() -> None:
    def plain(link: socket.socket) -> None:
        link.recv(1 << 16, socket.MSG_PEEK)
        link.sendall(OK)
        with contextlib.suppress(ConnectionResetError):  # one of the two ways in which a client ends a bad handshake
            while link.recv(1 << 16):
                continue

    with (
        serving(plain) as url,
        client(url.replace("http", "https")) as http,
        pytest.raises(Unreachable, match="SSL"),
    ):
        http.get()


def test_an_answer_that_breaks_off_leaves_the_outcome_unknown() -> None:
    short = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok"

    def sending(answer: bytes) -> Served:
        def serve(link: socket.socket) -> None:
            asked(link)
            link.sendall(answer)

        return serve

    for answer in (short, b"", b"no HTTP at all\r\n\r\n"):
        with (
            serving(sending(answer)) as url,
            client(url) as http,
            pytest.raises(Unavailable, match=r"broke .*outcome unknown"),
        ):
            http.get()


def test_a_broker_that_says_nothing_is_given_up() -> None:
    with (
        serving(answering(b"")) as url,
        client(url) as http,
        pytest.raises(Unavailable, match=r"timed out.*outcome unknown"),
    ):
        http.get(answer_timeout_s=0.05)


def test_close_breaks_off_a_request_that_waits() -> None:
    waiting = threading.Event()
    failed: list[Exception] = []

    def wait(link: socket.socket) -> None:
        asked(link)
        waiting.set()
        ended(link)

    def ask(http: Client) -> None:
        try:
            http.get(answer_timeout_s=60.0)
        except Unavailable as error:
            failed.append(error)

    with serving(wait) as url, client(url) as http:
        thread = threading.Thread(target=ask, args=(http,))
        thread.start()
        assert waiting.wait(20)
        http.connection.close()
        thread.join(20)
        assert not thread.is_alive()
        with pytest.raises(Unavailable, match="closed"):
            http.get()
    assert len(failed) == 1


def test_a_refusal_before_the_whole_body_was_sent_is_raised() -> None:
    problem = b'{"code":"too_large","detail":"no","limit_name":"request.max.bytes","limit_bytes":1}'
    head = b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(problem)

    def refuse(link: socket.socket) -> None:
        asked(link)
        link.sendall(head + problem)

    with serving(refuse) as url, client(url) as http, pytest.raises(TooLarge) as raised:
        http.post("/", [memoryview(bytes(40 << 18))])
    assert raised.value.limit_bytes == 1
