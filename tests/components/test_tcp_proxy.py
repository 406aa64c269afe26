"""The proxy of the tests closes every connection when it stops."""

from __future__ import annotations

import contextlib
import socket
from urllib.parse import urlsplit

from tests.components.tcp_proxy import TcpProxy


def test_a_connection_accepted_in_the_turn_of_the_loop_that_stops_the_proxy_is_closed() -> None:
    clients: list[socket.socket] = []

    def connect_and_stop() -> None:
        """On the proxy's loop: its next turn sets `stopping`, and then accepts."""
        clients.append(socket.create_connection(("127.0.0.1", urlsplit(proxy.url).port or 0), timeout=5))
        proxy.loop.call_soon(proxy.stopping.set)

    proxy = TcpProxy("http://127.0.0.1:9").__enter__()
    proxy.loop.call_soon_threadsafe(connect_and_stop)
    proxy.thread.join(10)
    with clients[0] as client, contextlib.suppress(ConnectionResetError):
        assert client.recv(1) == b"", "a connection that stays open leads to a timeout here"
