"""A server on a raw socket that answers by a script: errors, half answers, silence, resets."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import BinaryIO


@dataclass(frozen=True)
class Request:
    """A received request; header names are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


Act = Callable[[socket.socket, Request], bool]
"""What to do with one request; False ends the connection."""


class MisbehavingServer:
    """Runs the acts of the script in turn, one per request, and repeats the last one."""

    def __init__(self, *script: Act) -> None:
        self.requests: list[Request] = []
        self._script = list(script)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    @property
    def url(self) -> str:
        host, port = self._listener.getsockname()
        return f"http://{host}:{port}"

    def __enter__(self) -> MisbehavingServer:
        self._threads[0].start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        for connection in self._open:
            _end(connection)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # the test has ended
                return
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            try:
                while request := _read_request(stream):
                    self.requests.append(request)
                    act = self._script.pop(0) if len(self._script) > 1 else self._script[0]
                    if not act(connection, request):
                        return
            except OSError:  # the client closed the connection
                return


def answer(status: str, body: bytes = b"", headers: Sequence[str] = (), *, length: int | None = None) -> Act:
    """A complete answer that keeps the connection; or, with a `length` beyond the body, a truncated answer that ends
    it."""
    declared = len(body) if length is None else length
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {declared}", *headers]) + "\r\n\r\n"

    def act(connection: socket.socket, request: Request) -> bool:
        connection.sendall(head.encode() + (b"" if request.method == "HEAD" else body))
        return declared == len(body)

    return act


def refusal(status: str, code: str) -> Act:
    """An error in S3's format."""
    return answer(status, f"<Error><Code>{code}</Code><Message>told</Message></Error>".encode())


def raw(data: bytes) -> Act:
    """Send any bytes, then end the connection."""

    def act(connection: socket.socket, _: Request) -> bool:
        connection.sendall(data)
        return False

    return act


def reset(connection: socket.socket, _: Request) -> bool:
    """Break the connection with a TCP reset, without an answer."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False


def silence(connection: socket.socket, _: Request) -> bool:
    """Send no answer until the client gives up."""
    return bool(connection.recv(1))


def _read_request(stream: BinaryIO) -> Request | None:
    method, _, rest = stream.readline().decode().partition(" ")
    if not rest:
        return None
    headers: dict[str, str] = {}
    while line := stream.readline().decode().strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return Request(method, rest.partition(" ")[0], headers, stream.read(int(headers.get("content-length", "0"))))


def _end(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:  # already ended
        return
