"""A relay between a client and its broker that loses or changes answers, like a network or an older broker."""

from __future__ import annotations

import http.client
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Answered:
    """One request that the broker answered."""

    path: str
    status: int
    sequence: str | None


class BrokerLeft(Exception):
    """The broker broke the connection off."""


class _RelayServer(ThreadingHTTPServer):
    """A client may leave before its answer has come, for example when it closes. Every other error is printed."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), BrokenPipeError | ConnectionResetError):
            super().handle_error(request, client_address)


@dataclass
class Relay:
    """`lose` decides whether the answer to a request is lost (the connection closes instead). `change` replaces the
    body of an answer."""

    broker: str
    lose: Callable[[Answered], bool] = lambda _: False
    change: Callable[[bytes], bytes] = lambda body: body
    answered: list[Answered] = field(default_factory=list)
    url: str = ""

    @contextmanager
    def running(self) -> Iterator[Relay]:
        with _RelayServer(("127.0.0.1", 0), self._forwarding()) as server:
            self.url = f"http://127.0.0.1:{server.server_port}"
            serving = threading.Thread(target=server.serve_forever, args=(0.01,))
            serving.start()
            try:
                yield self
            finally:
                server.shutdown()
                serving.join()

    def _forwarding(self) -> type[BaseHTTPRequestHandler]:
        relay = self

        class Forwarding(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", "0")))
                answer, told = self._forwarded(body)
                seen = Answered(self.path, answer.status, self.headers.get("tidelog-sequence"))
                relay.answered.append(seen)
                if relay.lose(seen):
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.headers["content-type"])
                self.send_header("Content-Length", str(len(told)))
                self.end_headers()
                self.wfile.write(told)

            def _forwarded(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
                onward = http.client.HTTPConnection(urlsplit(relay.broker).netloc, timeout=30)
                try:
                    onward.request(self.command, self.path, body or None, dict(self.headers))
                    answer = onward.getresponse()
                    return answer, relay.change(answer.read())
                except ConnectionError as error:
                    raise BrokerLeft(relay.broker) from error
                finally:
                    onward.close()

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *arguments: object) -> None:
                pass

        return Forwarding
