"""Keeps connections to other brokers and sends requests over them.

    request = PeerRequest("GET", "/v1/…/log", context)
    async with pool.call("http://10.0.0.7:8080", request, answer_timeout_s=10) as answer:
        body = await answer.read()

A failed call raises an error by what the caller may do next: `LeaderUnknown` if the peer was not reached, so nothing
was sent; `Unavailable` if the connection broke or was too slow after that, so the outcome is unknown. Calls that wait
for records use separate connections, which the number of waiting requests bounds, so they never delay a produce.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus

import aiohttp
from yarl import URL

from tidelog.services.broker.api.request_context import ANONYMOUS, RequestContext
from tidelog.services.peers.proof import PEER_HEADER, PeerProofs
from tidelog.storage.errors import LeaderUnknown, TidelogError, Unavailable
from tidelog.storage.object_store import Body
from tidelog.storage.runtime import Clock
from tidelog.wire import headers as header_names
from tidelog.wire.errors import error_of_problem, read_problem, retry_after_s

CONNECT_TIMEOUT_S = 1.0
CALLS_PER_PEER_MAX = 1_000
IDLE_S = 30.0
"""Less than the peer's own bound: the outcome of a request over a connection that the peer is closing is unknown."""
RETRY_AFTER_S = 0.1
_READ_BUFFER_BYTES = 1 << 19
_BREAKS = (aiohttp.ClientError, TimeoutError, ConnectionError)
_OWN_HEADERS = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")


@dataclass(frozen=True)
class PeerRequest:
    """One request. `target`: path and query, encoded. `body_bytes`: None if the size of the body is not known. `waits`:
    the answer may come late. `endless`: the answer has no end, and may be silent for long."""

    method: str
    target: str
    context: RequestContext
    headers: Sequence[tuple[str, str]] = ()
    body: bytes | AsyncIterable[Body] | None = None
    body_bytes: int | None = None
    waits: bool = False
    endless: bool = False


class PeerAnswer:
    """An answer whose head has arrived. Reading its body raises `Unavailable` if the connection breaks."""

    def __init__(self, address: str, response: aiohttp.ClientResponse) -> None:
        self._address = address
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.raw_headers = response.raw_headers

    @property
    def body_bytes(self) -> int | None:
        """The Content-Length, if there is one."""
        return self._response.content_length

    async def read(self) -> bytes:
        """The whole body."""
        try:
            return await self._response.read()
        except _BREAKS as error:
            raise _broken(self._address, error) from error

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The body as it arrives."""
        content = self._response.content
        while True:
            try:
                piece, ended = await content.readchunk()
            except _BREAKS as error:
                raise _broken(self._address, error) from error
            if piece:
                yield piece
            elif not ended:
                return

    def close(self) -> None:
        """Release the connection. If the answer is incomplete, this ends the call at the peer."""
        self._response.close()


class PeerPool:
    """Connections to any number of peers. All calls must be made on one event loop."""

    def __init__(self, proofs: PeerProofs, clock: Clock) -> None:
        self._proofs = proofs
        self._clock = clock
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self._closed = False

    @asynccontextmanager
    async def call(self, address: str, request: PeerRequest, *, answer_timeout_s: float) -> AsyncGenerator[PeerAnswer]:
        """The answer, whose head arrives within `answer_timeout_s`. The caller reads its body before the block ends.
        Raises `LeaderUnknown` if the peer was not reached or did not accept the proof, `Unavailable` if it did not
        answer."""
        answer = await self.open(address, request, answer_timeout_s=answer_timeout_s)
        try:
            yield answer
        finally:
            answer.close()

    async def open(self, address: str, request: PeerRequest, *, answer_timeout_s: float) -> PeerAnswer:
        """As `call`, for a caller that closes the answer itself."""
        headers = self._headers(request)
        try:
            async with asyncio.timeout(answer_timeout_s):
                response = await self._session(waits=request.waits).request(
                    request.method,
                    URL(address + request.target, encoded=True),
                    headers=headers,
                    data=request.body,
                    timeout=_timeout(request, answer_timeout_s),
                    allow_redirects=False,
                )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:
            raise LeaderUnknown(
                f"the broker at {address} cannot be reached ({_reason(error)}): the request was not sent",
                retry_after_s=RETRY_AFTER_S,
            ) from error
        except _BREAKS as error:
            raise _broken(address, error) from error
        _check_proof_accepted(address, response)
        return PeerAnswer(address, response)

    def _headers(self, request: PeerRequest) -> list[tuple[str, str]]:
        """The headers of the request, its context and the proof."""
        context = request.context
        proof = self._proofs.sign(request.method, request.target, context.principal)
        headers = [*request.headers, *context_headers(context, self._clock.monotonic()), (PEER_HEADER, proof)]
        if request.body is not None and request.body_bytes is not None:
            headers.append(("Content-Length", str(request.body_bytes)))
        return headers

    async def aclose(self) -> None:
        """Close every connection. Calls in progress fail."""
        self._closed = True
        for session in self._sessions.values():
            await session.close()

    def _session(self, *, waits: bool) -> aiohttp.ClientSession:
        if self._closed:
            raise LeaderUnknown(
                "this broker is stopping: send the request to another broker", retry_after_s=RETRY_AFTER_S
            )
        if waits not in self._sessions:
            self._sessions[waits] = _open_session(waits=waits)
        return self._sessions[waits]


def _check_proof_accepted(address: str, response: aiohttp.ClientResponse) -> None:
    if response.status == HTTPStatus.UNAUTHORIZED and response.headers.get("WWW-Authenticate") == PEER_HEADER:
        response.close()
        raise LeaderUnknown(
            f"the broker at {address} does not accept the proof that this broker is a peer (their clocks or the "
            "secret of the cluster differ): the request was not applied",
            retry_after_s=RETRY_AFTER_S,
        )


def _open_session(*, waits: bool) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(
        limit=0, limit_per_host=0 if waits else CALLS_PER_PEER_MAX, keepalive_timeout=IDLE_S
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        read_bufsize=_READ_BUFFER_BYTES,
        skip_auto_headers=_OWN_HEADERS,
    )


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> TidelogError:
    """The error that an answer of `status` (400 and above) stands for. An answer that the table of errors does not have
    (a proxy's, or a newer broker's) is `Unavailable`: the outcome is unknown."""
    problem = read_problem(body)
    error = error_of_problem(status, problem, retry_after_s(headers))
    return error or Unavailable(problem.detail or f"a peer answered {status}")


def _timeout(request: PeerRequest, answer_timeout_s: float) -> aiohttp.ClientTimeout:
    """A pause within an answer is bounded by the same time as its head, unless the answer is endless."""
    silence_s = None if request.endless else answer_timeout_s
    return aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=silence_s)


def _broken(address: str, error: BaseException) -> Unavailable:
    return Unavailable(f"the connection to the broker at {address} broke ({_reason(error)}): the outcome is unknown")


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


def context_headers(context: RequestContext, now_s: float) -> list[tuple[str, str]]:
    """The headers from which the peer's front makes the same context. `now_s`: the time on the monotonic clock."""
    found = [(header_names.REQUEST_ID, context.request_id)]
    if context.client_id:
        found.append((header_names.CLIENT_ID, context.client_id))
    if context.principal != ANONYMOUS:
        found.append((header_names.PRINCIPAL, context.principal))
    if context.deadline_s is not None:
        found.append((header_names.TIMEOUT_MS, str(max(0, int((context.deadline_s - now_s) * 1000)))))
    return found
