"""HTTP to a broker, or to several of one cluster: sends requests, repeats them, and raises refusals as errors.

A request is sent again, with jittered backoff and until a deadline, when that can do no harm: the broker took nothing
(`Overloaded`), was never reached (`Unreachable`), or the request is `repeatable`: a read, or a produce with a sequence,
which the log takes once however often it comes (inv. 7). It is sent again to the next of the brokers, at once if the
last one was not there at all.

The first time that a broker is not there, a warning names its address at once. A client that has never reached any of
its brokers gives up after `connect_timeout_s`: the address is probably wrong.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import httpx

from tidelog.client.bootstrap import Brokers
from tidelog.client.plain_transport import PlainTransport, body_of
from tidelog.client.problems import error_of
from tidelog.storage.errors import Fenced, Overloaded, TidelogError, Unavailable
from tidelog.storage.runtime import Runtime

DEFAULT_BROKER = "http://127.0.0.1:8080"
JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"

BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 2.0
FIRST_CONNECT_TIMEOUT_S = 5.0
"""How long a client looks for its first broker, by default."""
CONNECT_TIMEOUT_S = 5.0
CONNECT_NEXT_S = 1.0
"""Where there is another broker to go to."""
ANSWER_TIMEOUT_MIN_S = 5.0
"""A broker that was reached may take so long, however near the deadline is."""
IDLE_MAX_S = 30.0
WRITE_CHUNK_BYTES = 1 << 18
SMALL_PIECE_BYTES = 1 << 14

logger = logging.getLogger("tidelog.client")


class Unreachable(Unavailable):
    """No connection came about, so the request was never sent."""


@dataclass(frozen=True)
class Request:
    """What to ask. `path` begins with ``/``; `body` is in pieces, which are not copied together; `answer_timeout_s` is
    how long the broker may be silent."""

    method: str
    path: str
    query: Mapping[str, str | int] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Sequence[memoryview] = ()
    repeatable: bool = True
    answer_timeout_s: float = 60.0


@dataclass(frozen=True)
class Answer:
    """A broker's answer below 400. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes | memoryview


class Connection:
    """Connections to `broker`, or to one of several with commas between, shared by threads. `deadline_s` bounds a call
    with all its retries; until a broker was reached once, `connect_timeout_s` does (None: a broker was reached before,
    by another connection)."""

    def __init__(
        self,
        broker: str = DEFAULT_BROKER,
        *,
        deadline_s: float = 10.0,
        connect_timeout_s: float | None = None,
        runtime: Runtime | None = None,
        pool: int = 16,
    ) -> None:
        self._brokers = Brokers(broker)
        self._deadline_s = deadline_s
        self._connect_timeout_s = connect_timeout_s
        self._warned = False
        self._runtime = runtime or Runtime()
        self._closed = threading.Event()
        limits = httpx.Limits(max_connections=pool, max_keepalive_connections=pool, keepalive_expiry=IDLE_MAX_S)
        plain = PlainTransport(self._runtime.clock, connections_max=pool, idle_max_s=IDLE_MAX_S)
        self._http = httpx.Client(limits=limits, trust_env=False, mounts={"http://": plain})

    def call(self, request: Request, *, deadline_s: float | None = None) -> Answer:
        """The answer, after as many attempts as the deadline allows. Raises the errors of `tidelog.storage.errors`."""
        clock = self._runtime.clock
        began, bound_s = clock.monotonic(), self._deadline_s if deadline_s is None else deadline_s
        backoff_s, unreached = BACKOFF_FIRST_S, 0
        while True:
            broker = self._brokers.current
            give_up_at = began + self._patience_s(bound_s)
            try:
                now = clock.monotonic()
                return self._once(broker, request, began + bound_s - now, self._connecting_s(give_up_at - now))
            except (Unavailable, Fenced) as error:
                self._brokers.leave(broker)
                unreached = unreached + 1 if isinstance(error, Unreachable) else 0
                give_up_at = began + self._patience_s(bound_s)
                wait_s = max(backoff_s * self._runtime.entropy.uniform(0.5, 1.0), _asked_wait_s(error))
                if unreached % len(self._brokers):
                    wait_s = 0.0  # another broker may be there
                if not _harmless_to_repeat(request, error) or clock.monotonic() + wait_s > give_up_at:
                    raise
                if unreached:
                    self._warn(error, give_up_at - clock.monotonic())
            if self._closed.wait(wait_s):
                raise Unavailable("the connection was closed while a request waited to be sent again")
            backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)

    def close(self) -> None:
        """End the calls under way (`Unavailable`), and release the sockets. Calling it again does nothing."""
        self._closed.set()
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _patience_s(self, deadline_s: float) -> float:
        """How long a call may take, by what is known of the brokers now."""
        return deadline_s if self._connect_timeout_s is None else min(deadline_s, self._connect_timeout_s)

    def _warn(self, error: TidelogError, left_s: float) -> None:
        """Once for each connection: a program that waits in silence looks as if it hung."""
        if not self._warned and not self._closed.is_set():
            self._warned = True
            logger.warning("%s. Trying again for up to %.0f s.", error, max(left_s, 0.0))

    def _once(self, broker: str, request: Request, left_s: float, connecting_s: float) -> Answer:
        """One attempt. A broker that was reached has `left_s` to answer; to reach it takes `connecting_s` at most."""
        headers = dict(request.headers)
        content = _Chunks(request.body) if request.body else None
        if content is not None:
            headers["content-length"] = str(sum(piece.nbytes for piece in request.body))
        answer_timeout_s = min(request.answer_timeout_s, max(left_s, ANSWER_TIMEOUT_MIN_S))
        timeout = httpx.Timeout(answer_timeout_s, connect=connecting_s, pool=None)
        url = broker + request.path
        if self._closed.is_set():
            raise Unavailable("the connection is closed")
        try:
            response = self._http.request(
                request.method, url, params=request.query, headers=headers, content=content, timeout=timeout
            )
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise Unreachable(
                f"no broker answers at {broker} ({error}): start one with `tidelog serve`, or name it with "
                "--broker or TIDELOG_BROKER"
            ) from error
        except RuntimeError as error:
            if not self._closed.is_set():
                raise
            raise Unavailable("the connection was closed meanwhile") from error
        except httpx.TransportError as error:
            self._connect_timeout_s = None
            reason = str(error) or type(error).__name__
            raise Unavailable(f"the connection to {broker} broke ({reason}): outcome unknown") from error
        self._connect_timeout_s = None
        if response.status_code >= 400:
            raise error_of(response.status_code, response.headers, bytes(body_of(response)))
        return Answer(response.status_code, response.headers, body_of(response))

    def _connecting_s(self, left_s: float) -> float:
        """How long one attempt to connect may take."""
        usual_s = CONNECT_TIMEOUT_S if len(self._brokers) == 1 else CONNECT_NEXT_S
        return usual_s if self._connect_timeout_s is None else min(usual_s, max(left_s, CONNECT_NEXT_S))


class _Chunks(httpx.SyncByteStream):
    """A body in chunks of some size: small pieces together, since each is a system call, and large ones divided, since
    the transport copies what is left of a chunk whenever the socket takes only a part of it."""

    def __init__(self, pieces: Sequence[memoryview]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        small: list[memoryview] = []
        for piece in self._pieces:
            if piece.nbytes <= SMALL_PIECE_BYTES:
                small.append(piece)
                continue
            if small:
                yield b"".join(small)
                small = []
            for start in range(0, piece.nbytes, WRITE_CHUNK_BYTES):
                yield bytes(piece[start : start + WRITE_CHUNK_BYTES])
        yield b"".join(small)


def _harmless_to_repeat(request: Request, error: Unavailable | Fenced) -> bool:
    return request.repeatable or isinstance(error, Overloaded | Unreachable)


def _asked_wait_s(error: Unavailable | Fenced) -> float:
    return error.retry_after_s if isinstance(error, Overloaded) else 0.0
