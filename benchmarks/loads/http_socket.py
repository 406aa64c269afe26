"""HTTP/1.1 over one kept connection with as little Python as possible, so that the load program itself costs little."""

from __future__ import annotations

import socket
from dataclasses import dataclass

RECEIVE_BYTES = 1 << 20


@dataclass(frozen=True)
class Answer:
    """Status, headers (lower-case names, bytes) and body."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


class HttpSocket:
    """One connection; `exchange` sends a whole request and reads its whole answer."""

    def __init__(self, port: int, timeout_seconds: float = 60.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb", RECEIVE_BYTES)

    def exchange(self, request: bytes) -> Answer:
        """Raises `OSError` if the connection breaks."""
        self._socket.sendall(request)
        line = self._answers.readline()
        if not line:
            raise ConnectionResetError("the broker closed the connection")
        headers: dict[bytes, bytes] = {}
        while (header := self._answers.readline()) not in (b"\r\n", b""):
            name, _, value = header.partition(b":")
            headers[name.lower()] = value.strip()
        return Answer(int(line.split()[1]), headers, self._body(headers))

    def close(self) -> None:
        self._answers.close()
        self._socket.close()

    def _body(self, headers: dict[bytes, bytes]) -> bytes:
        if headers.get(b"transfer-encoding", b"").lower() != b"chunked":
            return bytes(self._answers.read(int(headers.get(b"content-length", b"0"))))
        parts = []
        while size := int(self._answers.readline().split(b";")[0], 16):
            parts.append(self._answers.read(size))
            self._answers.readline()
        self._answers.readline()
        return b"".join(parts)


def post(path: str, content_type: str, body: bytes) -> bytes:
    """A whole POST request."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {content_type}\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


def get(path: str, accept: str) -> bytes:
    """A whole GET request."""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {accept}\r\n\r\n".encode()
