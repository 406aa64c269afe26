"""The ASGI application that every request meets first: before the direct lane, the router, and FastAPI's middleware.

    connection ─▶ path ─▶ Host ─▶ Origin ─▶ content type ─▶ peer ─▶ RequestContext
        ─▶ direct lane or router ─▶ stamped and measured answer

A check that fails is answered at once, in the form of every refusal, and nothing else sees the request. One who makes
an answer further in reads the context by `request_context.context_of`.

A server that stops gives requests a while and then cancels what is left. Its own answer to those would be a bare 500,
which tells a client neither that it may go elsewhere nor what became of its records. So a request that is cancelled
before its answer began, while the broker stops, is answered `unavailable` (outcome unknown).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tidelog.services.http.front.change_check import check_change
from tidelog.services.http.front.connection_check import check_connection
from tidelog.services.http.front.host_check import HostCheck
from tidelog.services.http.front.origin_check import PREFLIGHT_HEADERS, Headers, OriginCheck, is_preflight
from tidelog.services.http.front.path_check import check_path
from tidelog.services.http.front.peer_check import proved_peer
from tidelog.services.http.front.request_context import RequestContexts, check_timeout, store_context
from tidelog.services.http.front.request_head import RequestHead, head_of
from tidelog.services.http.front.request_measurements import RequestMeasurements
from tidelog.services.http.front.stamped_answer import StampedAnswer
from tidelog.services.peers.proof import PeerProofs
from tidelog.storage.errors import TidelogError, Unavailable
from tidelog.wire import headers

Teller = Callable[[Request, Exception], Response]
"""How an error is answered."""

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
    """What the checks found: `refusal` if one of them failed."""

    granted: Headers = ()
    from_peer: bool = False
    refusal: TidelogError | None = None


class HttpFront:
    """`inner` behind the checks. `stopping`: whether the broker stops."""

    def __init__(
        self,
        inner: ASGIApp,
        checks: FrontChecks,
        contexts: RequestContexts,
        measurements: RequestMeasurements,
        tell: Teller,
        stopping: Callable[[], bool],
    ) -> None:
        self._inner = inner
        self._checks = checks
        self._contexts = contexts
        self._measurements = measurements
        self._tell = tell
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
        answer = StampedAnswer(send, ((_REQUEST_ID, context.request_id.encode()), *admitted.granted), began)
        if admitted.refusal is not None:
            await self._tell(Request(scope), admitted.refusal)(scope, receive, answer)
            return
        if admitted.granted and is_preflight(head):
            await _preflight()(scope, receive, answer)
            return
        try:
            await self._inner(scope, receive, answer)
        except asyncio.CancelledError:
            if answer.status or not self._stopping():
                raise
            error = Unavailable("the broker stopped before it could answer: the outcome is unknown, ask another")
            await self._tell(Request(scope), error)(scope, receive, answer)

    def _admitted(self, scope: Scope, head: RequestHead) -> _Admitted:
        admitted = _Admitted()
        try:
            check_connection(scope)
            check_path(head)
            self._checks.hosts.check(head)
            admitted.granted = self._checks.origins.check(head)
            check_change(head)
            check_timeout(head)
            admitted.from_peer = proved_peer(head, self._checks.proofs)
        except TidelogError as refusal:
            admitted.refusal = refusal
        return admitted


def _preflight() -> Response:
    response = Response(status_code=_NO_CONTENT)
    response.raw_headers.extend(PREFLIGHT_HEADERS)
    return response
