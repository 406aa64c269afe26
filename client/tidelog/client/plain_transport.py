"""HTTP/1.1 to a broker, in which an answer's body is received in one piece: the transport under `Connection` for
``http://``.

httpx's own takes a body apart into chunks of 64 KiB and copies each three times, which was most of what a consumer that
replays a partition did. Here the standard library reads it from the socket straight into the memory that the caller
gets (`body_of`). The errors are httpx's, and so is everything above: URLs, headers, content codings.

A connection is kept for the next request. One that its broker has closed meanwhile is told by something being there to
read (its end), and dropped before anything is sent over it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead

import httpx
import pyarrow as pa

from tidelog.storage.runtime import Clock

HTTP_PORT = 80
LARGE_BYTES = 1 << 20
_LARGE = "tidelog.large_body"


@dataclass(frozen=True)
class _Place:
    host: str
    port: int


@dataclass(frozen=True)
class _Idle:
    place: _Place
    connection: HTTPConnection
    idle_from: float


class PlainTransport(httpx.BaseTransport):
    """At most `connections_max` requests at a time, shared by threads; an idle connection is kept `idle_max_s` at
    most."""

    def __init__(self, clock: Clock, *, connections_max: int, idle_max_s: float) -> None:
        self._clock = clock
        self._idle_max_s = idle_max_s
        self._turns = threading.BoundedSemaphore(connections_max)
        self._lock = threading.Lock()
        self._idle: deque[_Idle] = deque()
        self._busy: set[socket.socket] = set()
        self._closed = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The whole answer. Raises `httpx.TransportError`."""
        timeouts = request.extensions["timeout"]
        place = _Place(request.url.host, request.url.port or HTTP_PORT)
        with self._turns:
            connection = self._kept(place) or _connected(place, timeouts["connect"])
            link = connection.sock
            try:
                self._take(link)
                response = _exchange(connection, request, timeouts["read"])
            except BaseException:
                connection.close()
                raise
            finally:
                with self._lock:
                    self._busy.discard(link)
            self._keep(place, connection)
            return response

    def close(self) -> None:
        """Close what is idle, and break off what waits for an answer: it fails with `httpx.ReadError`."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, deque()
            for link in self._busy:
                with contextlib.suppress(OSError):  # it has ended by itself
                    link.shutdown(socket.SHUT_RDWR)
        for one in idle:
            one.connection.close()

    def _take(self, link: socket.socket) -> None:
        """Note that `link` is in use, so that `close` can break it off."""
        with self._lock:
            if self._closed:
                raise httpx.ReadError("the transport is closed")
            self._busy.add(link)

    def _kept(self, place: _Place) -> HTTPConnection | None:
        """A connection to `place` that is still open, the one used last."""
        while one := self._taken(place):
            if self._clock.monotonic() - one.idle_from <= self._idle_max_s and not _ended(one.connection.sock):
                return one.connection
            one.connection.close()
        return None

    def _taken(self, place: _Place) -> _Idle | None:
        with self._lock:
            found = next((one for one in reversed(self._idle) if one.place == place), None)
            if found is not None:
                self._idle.remove(found)
            return found

    def _keep(self, place: _Place, connection: HTTPConnection) -> None:
        if connection.sock is None:  # closed with the answer
            return
        now = self._clock.monotonic()
        unwanted: list[HTTPConnection] = []
        with self._lock:
            while self._idle and now - self._idle[0].idle_from > self._idle_max_s:
                unwanted.append(self._idle.popleft().connection)
            if self._closed:
                unwanted.append(connection)
            else:
                self._idle.append(_Idle(place, connection, now))
        for one in unwanted:
            one.close()


def _connected(place: _Place, timeout_s: float | None) -> HTTPConnection:
    connection = HTTPConnection(place.host, place.port, timeout=timeout_s)
    try:
        connection.connect()
    except TimeoutError as error:
        raise httpx.ConnectTimeout(str(error)) from error
    except OSError as error:
        raise httpx.ConnectError(str(error)) from error
    return connection


def _exchange(connection: HTTPConnection, request: httpx.Request, timeout_s: float | None) -> httpx.Response:
    """Send `request` and receive its answer. `timeout_s` is how long the broker may be silent."""
    connection.sock.settimeout(timeout_s)
    try:
        whole = _send(connection, request)
        answer = connection.getresponse()
        large = _large_body(answer)
        body = answer.read() if large is None else b""
    except TimeoutError as error:
        raise httpx.ReadTimeout(str(error)) from error
    except (OSError, HTTPException) as error:
        raise httpx.ReadError(str(error)) from error
    if not whole:
        connection.close()
    return httpx.Response(
        answer.status,
        headers=answer.getheaders(),
        stream=httpx.ByteStream(body),
        extensions={} if large is None else {_LARGE: large},
        request=request,
    )


def body_of(response: httpx.Response) -> bytes | memoryview:
    """The body of an answer that came by this transport, or by httpx's own."""
    large: memoryview | None = response.extensions.get(_LARGE)
    return response.content if large is None else large


def _large_body(answer: HTTPResponse) -> memoryview | None:
    """A large body, in memory of Arrow's, which is used again for the next one: as fresh bytes, the kernel would have
    to clear each page of it first. None if the body is to be read otherwise."""
    if answer.length is None or answer.length < LARGE_BYTES or answer.getheader("content-encoding"):
        return None
    body = memoryview(pa.allocate_buffer(answer.length)).cast("B")
    received = 0
    while received < len(body):
        count = answer.readinto(body[received:])
        if not count:
            raise IncompleteRead(b"", len(body) - received)
        received += count
    return body


def _send(connection: HTTPConnection, request: httpx.Request) -> bool:
    """Send `request`; False if the broker stopped taking it: it may have answered before it had all of it (413)."""
    target = request.url.raw_path.decode("ascii")
    connection.putrequest(request.method, target, skip_host=True, skip_accept_encoding=True)
    for name, value in request.headers.raw:
        connection.putheader(name.decode("ascii"), value)
    assert isinstance(request.stream, httpx.SyncByteStream)
    try:
        connection.endheaders()
        for chunk in request.stream:
            connection.send(chunk)
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


def _ended(link: socket.socket) -> bool:
    """Whether there is something to read where nothing was asked for: the other side's end, or its error."""
    link.settimeout(0.0)
    try:
        link.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
