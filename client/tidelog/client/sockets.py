"""The open connections of a client to one broker: a urllib3 pool that also breaks off requests under way.

urllib3 keeps connections, drops those that the broker has closed, and sets TCP_NODELAY. Two things are added here:

- `close` ends requests that wait for an answer; otherwise a long poll would keep a thread until its timeout.
- A connection that was idle for `IDLE_MAX_S` is not used again. The broker closes idle connections later than that, so
  a request does not meet a connection that is being closed.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any
from urllib.parse import unquote
from weakref import WeakSet

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError
from urllib3.util import make_headers, parse_url

from tidelog.client.broker_access import BrokerAccess
from tidelog.storage.runtime import Clock

IDLE_MAX_S = 30.0


class OpenSockets:
    """The connections of all pools of one client, for `break_off`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._connections: WeakSet[HTTPConnection] = WeakSet()
        self._lock = threading.Lock()
        self._closed = False

    def add(self, connection: HTTPConnection) -> None:
        """Raises `NewConnectionError` after `break_off`."""
        with self._lock:
            if not self._closed:
                self._connections.add(connection)
                return
        connection.close()
        raise NewConnectionError(connection, "the client is closed")

    def break_off(self) -> None:
        """End every request under way, and refuse new connections."""
        with self._lock:
            self._closed = True
            for connection in self._connections:
                if connection.sock is not None:
                    with contextlib.suppress(OSError):  # it has ended by itself
                        connection.sock.shutdown(socket.SHUT_RDWR)


class _Connection(HTTPConnection):
    def __init__(self, *args: Any, open_sockets: OpenSockets, **options: Any) -> None:
        super().__init__(*args, **options)
        self._open_sockets = open_sockets
        self._used_at = 0.0

    def connect(self) -> None:
        """Raises `ConnectTimeoutError`, or `NewConnectionError` for any other reason, also in the TLS handshake."""
        try:
            super().connect()
        except (ConnectTimeoutError, NewConnectionError):
            raise
        except (OSError, HTTPError) as error:
            raise NewConnectionError(self, str(error)) from error
        self._open_sockets.add(self)

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]  # as in urllib3 itself
        response = super().getresponse()
        self._used_at = self._open_sockets.clock.monotonic()
        return response

    @property
    def is_connected(self) -> bool:
        return self._open_sockets.clock.monotonic() - self._used_at <= IDLE_MAX_S and super().is_connected


class _TlsConnection(_Connection, HTTPSConnection):
    pass


def pool_to(
    broker: str, connections_max: int, open_sockets: OpenSockets, access: BrokerAccess
) -> urllib3.HTTPConnectionPool:
    """A pool for the URL `broker` of at most `connections_max` connections; a further thread waits for one. User and
    password, of `access` or of the URL, become a header."""
    url = parse_url(broker)
    tls = access.tls_context() if url.scheme == "https" else None
    pool = urllib3.connection_from_url(
        broker,
        headers=make_headers(basic_auth=unquote(url.auth)) if url.auth else access.headers(),
        **({} if tls is None else {"ssl_context": tls}),
        maxsize=connections_max,
        block=True,
        retries=False,
        open_sockets=open_sockets,
    )
    pool.ConnectionCls = _TlsConnection if pool.scheme == "https" else _Connection
    return pool
