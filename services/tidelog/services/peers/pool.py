"""Connections to other brokers: kept open between calls, bounded in number.

    request = PeerRequest("GET", "/v1/…/log", context)
    async with pool.ask("http://10.0.0.7:8080", request, answer_timeout_s=10) as answer:
        body = await answer.read()

A call that fails says what its caller may do next: `LeaderUnknown` when the peer was never reached, so that nothing of
the request was sent; `Unavailable` when the connection broke, or was too slow, after that. Calls that wait for records
have connections of their own, which are as many as `Connections` lets wait, so that they never keep a produce waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus

import aiohttp
from yarl import URL

from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.peers.context_headers import context_headers
from tidelog.services.peers.proof import PEER_HEADER, PeerProofs
from tidelog.storage.errors import LeaderUnknown, Unavailable
from tidelog.storage.object_store import Body
from tidelog.storage.runtime import Clock

CONNECT_TIMEOUT_S = 1.0
CALLS_PER_PEER_MAX = 1_000
IDLE_S = 30.0
"""A kept connection is let go of before the peer would: what became of a request sent into a closing one is unknown."""
RETRY_AFTER_S = 0.1
_READ_BUFFER_BYTES = 1 << 19
_BREAKS = (aiohttp.ClientError, TimeoutError, ConnectionError)
_OWN_HEADERS = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")


@dataclass(frozen=True)
class PeerRequest:
    """One request. `target` is path and query as they go over the wire; `body_bytes` None: its end is not known yet;
    `waits`: the answer may be a long time coming; `endless`: it has no end, and may be silent for long."""

    method: str
    target: str
    context: RequestContext
    headers: Sequence[tuple[str, str]] = ()
    body: bytes | AsyncIterable[Body] | None = None
    body_bytes: int | None = None
    waits: bool = False
    endless: bool = False


class PeerAnswer:
    """An answer whose head has come. Reading the rest raises `Unavailable` if the connection breaks."""

    def __init__(self, address: str, response: aiohttp.ClientResponse) -> None:
        self._address = address
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.raw_headers = response.raw_headers

    @property
    def body_bytes(self) -> int | None:
        """As its head tells."""
        return self._response.content_length

    async def read(self) -> bytes:
        """The whole body."""
        try:
            return await self._response.read()
        except _BREAKS as error:
            raise _broken(self._address, error) from error

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The body as it comes."""
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
        """Let go of the connection, which ends the call at the peer if its answer is not whole."""
        self._response.close()


class PeerPool:
    """Connections to any number of peers. Its first call is made on the event loop that all others are made on."""

    def __init__(self, proofs: PeerProofs, clock: Clock) -> None:
        self._proofs = proofs
        self._clock = clock
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self._closed = False

    @asynccontextmanager
    async def ask(self, address: str, request: PeerRequest, *, answer_timeout_s: float) -> AsyncGenerator[PeerAnswer]:
        """The answer's head, within `answer_timeout_s`, with its body to be read before the block ends. Raises
        `LeaderUnknown` if the peer was not reached or takes this broker for no peer, `Unavailable` if it was and did
        not answer."""
        answer = await self.open(address, request, answer_timeout_s=answer_timeout_s)
        try:
            yield answer
        finally:
            answer.close()

    async def open(self, address: str, request: PeerRequest, *, answer_timeout_s: float) -> PeerAnswer:
        """As `ask`, for a caller that closes the answer itself."""
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
                f"the broker at {address} cannot be reached ({_reason(error)}): nothing was sent",
                retry_after_s=RETRY_AFTER_S,
            ) from error
        except _BREAKS as error:
            raise _broken(address, error) from error
        if response.status == HTTPStatus.UNAUTHORIZED and response.headers.get("WWW-Authenticate") == PEER_HEADER:
            response.close()
            raise LeaderUnknown(
                f"the broker at {address} does not believe that this broker is a peer (their clocks or the secret of "
                "the cluster differ): nothing was taken",
                retry_after_s=RETRY_AFTER_S,
            )
        return PeerAnswer(address, response)

    def _headers(self, request: PeerRequest) -> list[tuple[str, str]]:
        """The request's own, those of its context, and the proof that this broker sends it."""
        context = request.context
        proof = self._proofs.made(request.method, request.target, context.principal)
        headers = [*request.headers, *context_headers(context, self._clock.monotonic()), (PEER_HEADER, proof)]
        if request.body is not None and request.body_bytes is not None:
            headers.append(("Content-Length", str(request.body_bytes)))
        return headers

    async def aclose(self) -> None:
        """Close every connection; what is under way fails."""
        self._closed = True
        for session in self._sessions.values():
            await session.close()

    def _session(self, *, waits: bool) -> aiohttp.ClientSession:
        if self._closed:
            raise LeaderUnknown("this broker is stopping: send to another", retry_after_s=RETRY_AFTER_S)
        if waits not in self._sessions:
            self._sessions[waits] = _open_session(waits=waits)
        return self._sessions[waits]


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


def _timeout(request: PeerRequest, answer_timeout_s: float) -> aiohttp.ClientTimeout:
    """An answer that has begun may stand still no longer than it may be a beginning, unless it is endless."""
    silence_s = None if request.endless else answer_timeout_s
    return aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=silence_s)


def _broken(address: str, error: BaseException) -> Unavailable:
    return Unavailable(f"the connection to the broker at {address} broke ({_reason(error)}): the outcome is unknown")


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
