"""HTTP to one broker, or to several brokers of one cluster. Any broker takes any request.

A `Connection` sends a request and returns the answer, or raises the refusal as an error of `tidelog.storage.errors`.
It sends a request again, with jittered backoff and until a deadline, if that is harmless:

- the broker took nothing (`Overloaded`) or was never reached (`Unreachable`), or
- the request is `repeatable`: a read, or a produce with a sequence, which the log takes once (inv. 7).

Each new attempt goes to the next broker, at once if the last one could not be reached. The first time that a broker
cannot be reached, a warning with its address is logged. A client that has never reached a broker gives up after
`connect_timeout_s`, because the address is probably wrong.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec
import urllib3
from urllib3.exceptions import ClosedPoolError, ConnectTimeoutError, HTTPError, NewConnectionError

from tidelog.client.broker_access import Broker, access_of
from tidelog.client.sockets import OpenSockets, pool_to
from tidelog.storage.errors import Corrupt, Fenced, Overloaded, TidelogError, Unavailable
from tidelog.storage.runtime import Runtime
from tidelog.wire.decoders import json_decoder
from tidelog.wire.errors import error_of_answer

DEFAULT_BROKER = "http://127.0.0.1:8080"
JSON = "application/json"

BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 2.0
FIRST_CONNECT_TIMEOUT_S = 5.0
"""How long a client tries to reach its first broker, by default."""
CONNECT_TIMEOUT_S = 5.0
CONNECT_NEXT_S = 1.0
"""The connect timeout if there is another broker to try."""
ANSWER_TIMEOUT_MIN_S = 5.0
"""A broker that was reached has at least this long to answer, however near the deadline is."""
SMALL_PIECE_BYTES = 1 << 14
"""Pieces of a body up to this size are joined, because each piece costs a system call."""

logger = logging.getLogger("tidelog.client")
T = TypeVar("T")


class Unreachable(Unavailable):
    """No connection was made, so the request was never sent."""


@dataclass(frozen=True)
class Request:
    """A request to a broker. `path` begins with ``/``. `body` is in pieces, which are sent without copying them
    together. `answer_timeout_s` bounds how long the broker may be silent."""

    method: str
    path: str
    query: Mapping[str, str | int] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Sequence[memoryview] = ()
    repeatable: bool = True
    answer_timeout_s: float = 60.0


@dataclass(frozen=True)
class Answer:
    """A broker's answer below 400. Header names match in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Brokers:
    """Addresses (``http://HOST:PORT``, separated by commas) and the one in use, shared by threads. Raises `Invalid` for
    anything that is not an address.

    >>> brokers = Brokers("http://10.0.0.7:8080,http://10.0.0.8:8080")
    >>> brokers.leave("http://10.0.0.7:8080")
    >>> brokers.current
    'http://10.0.0.8:8080'
    """

    def __init__(self, broker: Broker) -> None:
        self.addresses = access_of(broker).address_list
        self._place = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.addresses)

    @property
    def current(self) -> str:
        return self.addresses[self._place]

    def leave(self, address: str) -> None:
        """Move to the next address, unless another thread has left this one already."""
        with self._lock:
            if self.current == address:
                self._place = (self._place + 1) % len(self.addresses)


class Connection:
    """Connections to `broker`, or to several brokers separated by commas, shared by threads.

    `deadline_s` bounds a call with all its retries. Until a broker was reached once, `connect_timeout_s` bounds it too
    (None: another connection has reached a broker already). `pool` bounds the connections to one broker. `beside`: a
    connection to the same brokers; both use the same one of them, so that only one has to find a broker that
    answers."""

    def __init__(
        self,
        broker: Broker = DEFAULT_BROKER,
        *,
        deadline_s: float = 10.0,
        connect_timeout_s: float | None = None,
        runtime: Runtime | None = None,
        pool: int = 16,
        beside: Connection | None = None,
    ) -> None:
        access = access_of(broker)
        self._brokers: Brokers = Brokers(access) if beside is None else beside._brokers
        self._deadline_s = deadline_s
        self._connect_timeout_s = connect_timeout_s
        self._warned = False
        self._runtime = runtime or Runtime()
        self._closed = threading.Event()
        self._sockets = OpenSockets(self._runtime.clock)
        self._pools = {address: pool_to(address, pool, self._sockets, access) for address in self._brokers.addresses}

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
                    wait_s = 0.0  # another broker may be reachable
                if not harmless_to_repeat(request, error) or clock.monotonic() + wait_s > give_up_at:
                    raise
                if unreached:
                    self._warn(error, give_up_at - clock.monotonic())
            if self._closed.wait(wait_s):
                raise Unavailable("the connection was closed while a request waited to be sent again")
            backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)

    def attempt(self, request: Request, answer_s: float) -> Answer:
        """The answer, after one attempt: the caller has another broker to try. The broker has `answer_s` to answer, but
        at least `ANSWER_TIMEOUT_MIN_S`."""
        return self._once(self._brokers.current, request, answer_s, CONNECT_NEXT_S)

    def move_on(self) -> None:
        """Send the next call to another broker, if there is one."""
        self._brokers.leave(self._brokers.current)

    def close(self) -> None:
        """End the calls under way (`Unavailable`) and release the sockets. Calling it again does nothing."""
        self._closed.set()
        self._sockets.break_off()
        for pool in self._pools.values():
            pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _patience_s(self, deadline_s: float) -> float:
        """How long a call may take. It grows to `deadline_s` once a broker was reached."""
        return deadline_s if self._connect_timeout_s is None else min(deadline_s, self._connect_timeout_s)

    def _warn(self, error: TidelogError, left_s: float) -> None:
        """Once per connection, so that a program that waits does not look as if it hung."""
        if not self._warned and not self._closed.is_set():
            self._warned = True
            logger.warning("%s. Trying again for up to %.0f s.", error, max(left_s, 0.0))

    def _once(self, broker: str, request: Request, left_s: float, connecting_s: float) -> Answer:
        """One attempt. A broker that was reached has `left_s` to answer; connecting takes at most `connecting_s`."""
        if self._closed.is_set():
            raise Unavailable("the connection is closed")
        answer_timeout_s = min(request.answer_timeout_s, max(left_s, ANSWER_TIMEOUT_MIN_S))
        try:
            response = self._sent(broker, request, urllib3.Timeout(connect=connecting_s, read=answer_timeout_s))
        except (NewConnectionError, ConnectTimeoutError) as error:
            raise Unreachable(
                f"no broker answers at {broker} ({_reason(error)}): start one with `tidelog serve`, or name it with "
                "--broker or TIDELOG_BROKER"
            ) from error
        except ClosedPoolError as error:
            raise Unavailable("the connection was closed meanwhile") from error
        except HTTPError as error:
            self._connect_timeout_s = None
            raise Unavailable(f"the connection to {broker} broke ({_reason(error)}): outcome unknown") from error
        self._connect_timeout_s = None
        if response.status >= 400:
            raise error_of_answer(response.status, response.headers, response.data)
        return Answer(response.status, response.headers, response.data)

    def _sent(self, broker: str, request: Request, timeout: urllib3.Timeout) -> urllib3.BaseHTTPResponse:
        target = urlsplit(broker).path + request.path
        if request.query:
            target += f"?{urlencode(request.query)}"
        pool, body = self._pools[broker], None
        headers = {**pool.headers, **request.headers}
        if request.body:
            headers["content-length"] = str(sum(piece.nbytes for piece in request.body))
            body = _joined_if_small(request.body)
        return pool.urlopen(request.method, target, body, headers, redirect=False, timeout=timeout)

    def _connecting_s(self, left_s: float) -> float:
        """How long one attempt to connect may take."""
        usual_s = CONNECT_TIMEOUT_S if len(self._brokers) == 1 else CONNECT_NEXT_S
        return usual_s if self._connect_timeout_s is None else min(usual_s, max(left_s, CONNECT_NEXT_S))


def decoded(answer: Answer, shape: type[T]) -> T:
    """The body of `answer` as a `shape`. Raises `Corrupt`."""
    try:
        return json_decoder(shape).decode(answer.body)
    except msgspec.MsgspecError as error:
        raise Corrupt("the broker's answer", f"does not have the form in docs/http-api.md ({error})") from error


def _joined_if_small(pieces: Sequence[memoryview]) -> Iterator[Any]:
    """The body as it is sent: neighbouring small pieces in one, large ones as they are. urllib3 gives each to
    `sendall`, which takes any buffer."""
    small: list[memoryview] = []
    for piece in pieces:
        if piece.nbytes <= SMALL_PIECE_BYTES:
            small.append(piece)
            continue
        yield b"".join(small)
        small = []
        yield piece
    yield b"".join(small)


def _reason(error: HTTPError) -> str:
    """The cause of an error of urllib3 in one line, without the object that urllib3 names first."""
    return " ".join(str(error.__cause__ or error.args[-1]).split())


def harmless_to_repeat(request: Request, error: Unavailable | Fenced) -> bool:
    """Whether the broker took nothing of `request`, or can be sent it again."""
    return request.repeatable or isinstance(error, Overloaded | Unreachable)


def _asked_wait_s(error: Unavailable | Fenced) -> float:
    return error.retry_after_s if isinstance(error, Overloaded) else 0.0
