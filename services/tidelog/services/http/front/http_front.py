"""The first ASGI application that sees a request: before the direct lane, the router and FastAPI's middleware.

    connection ─▶ path ─▶ Host ─▶ Origin ─▶ content type ─▶ peer ─▶ RequestContext
        ─▶ direct lane or router ─▶ stamped and measured answer

A request that fails a check is answered at once with a problem, and no other part of the broker sees it. Routes read
the context with `request_context.context_of`.

A stopping server cancels requests that take too long, and would answer them with a bare 500. A client could not tell
from it whether to retry at another broker, or whether its records were applied. So the front answers a request that is
cancelled before its answer began with `unavailable` (outcome unknown).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidelog.services.http.front.head_checks import check_connection, check_content_type, check_path, proved_peer
from tidelog.services.http.front.host_check import HostCheck
from tidelog.services.http.front.origin_check import PREFLIGHT_HEADERS, Headers, OriginCheck, is_preflight
from tidelog.services.http.front.request_context import RequestContexts, check_timeout, store_context
from tidelog.services.http.front.request_head import RequestHead, head_of
from tidelog.services.http.front.request_measurements import RequestMeasurements
from tidelog.services.peers.proof import PeerProofs
from tidelog.storage.errors import TidelogError, Unavailable
from tidelog.wire import headers

AnswerError: TypeAlias = Callable[[Request, Exception], Response]
"""Makes the answer to a request that failed with an error."""

_REQUEST_ID = headers.REQUEST_ID.lower().encode()
_NO_CONTENT = 204


@dataclass(frozen=True)
class FrontChecks:
    """The checks that hold state; the others are functions."""

    hosts: HostCheck
    origins: OriginCheck
    proofs: PeerProofs


@dataclass(slots=True)
class _Admitted:
    """The result of the checks. `refusal`: the error of the check that failed."""

    granted: Headers = ()
    from_peer: bool = False
    refusal: TidelogError | None = None


class HttpFront:
    """Checks requests and passes them to `inner`. `stopping` returns whether the broker is stopping."""

    def __init__(
        self,
        inner: ASGIApp,
        checks: FrontChecks,
        contexts: RequestContexts,
        measurements: RequestMeasurements,
        answer_error: AnswerError,
        stopping: Callable[[], bool],
    ) -> None:
        self._inner = inner
        self._checks = checks
        self._contexts = contexts
        self._measurements = measurements
        self._answer_error = answer_error
        self._stopping = stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        began = self._measurements.begun(scope)
        head = head_of(scope)
        admitted = self._admitted(scope, head)
        context = self._contexts.of(head, from_peer=admitted.from_peer)
        store_context(scope, context)
        answer = _StampedAnswer(send, ((_REQUEST_ID, context.request_id.encode()), *admitted.granted), began)
        if admitted.refusal is not None:
            await self._answer_error(Request(scope), admitted.refusal)(scope, receive, answer)
            return
        if admitted.granted and is_preflight(head):
            await _preflight()(scope, receive, answer)
            return
        try:
            await self._inner(scope, receive, answer)
        except asyncio.CancelledError:
            if answer.status or not self._stopping():
                raise
            error = Unavailable(
                "the broker stopped before it answered: the outcome is unknown, send the request to another broker"
            )
            await self._answer_error(Request(scope), error)(scope, receive, answer)

    def _admitted(self, scope: Scope, head: RequestHead) -> _Admitted:
        admitted = _Admitted()
        try:
            check_connection(scope)
            check_path(head)
            self._checks.hosts.check(head)
            admitted.granted = self._checks.origins.check(head)
            check_content_type(head)
            check_timeout(head)
            admitted.from_peer = proved_peer(head, self._checks.proofs)
        except TidelogError as refusal:
            admitted.refusal = refusal
        return admitted


class _StampedAnswer:
    """The `send` of the server with `headers` added. Calls `began` with the status when the answer begins; `status` is
    0 until then."""

    __slots__ = ("_began", "_headers", "_send", "status")

    def __init__(self, send: Send, headers: Headers, began: Callable[[int], None]) -> None:
        self._send = send
        self._headers = headers
        self._began = began
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *self._headers]
            self._began(self.status)
        await self._send(message)


def _preflight() -> Response:
    response = Response(status_code=_NO_CONTENT)
    response.raw_headers.extend(PREFLIGHT_HEADERS)
    return response
