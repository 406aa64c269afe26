"""Makes the `RequestContext` of an HTTP request from its head, and keeps it in the ASGI scope.

`HttpFront` makes and stores it; routes read it by `context_of(request)`. Nothing in it comes from a header that a
client could use to gain a right: only a request of a proved peer may name a principal.

The request id is the client's own if that is printable, otherwise a new one: a random prefix of this process and
a count. That is unique, and cheaper than a random id per request.
"""

from __future__ import annotations

import itertools
import re

from starlette.requests import HTTPConnection
from starlette.types import Scope

from tidelog.services.broker.api.request_context import ANONYMOUS, RequestContext
from tidelog.services.http.front.request_head import RequestHead
from tidelog.storage.errors import Invalid
from tidelog.storage.runtime import Runtime
from tidelog.wire import headers

ID_CHARACTERS_MAX = 128
TIMEOUT_MS_MAX = 24 * 60 * 60 * 1000
_PREFIX_DIGITS = 12
_SCOPE_KEY = "tidelog.request_context"
_PRINTABLE = re.compile(rb"[!-~]{1,%d}" % ID_CHARACTERS_MAX)
_DIGITS = re.compile(rb"[0-9]{1,8}")
_REQUEST_ID, _CLIENT_ID, _PRINCIPAL, _TIMEOUT_MS = (
    name.lower().encode() for name in (headers.REQUEST_ID, headers.CLIENT_ID, headers.PRINCIPAL, headers.TIMEOUT_MS)
)


class RequestContexts:
    """Makes contexts."""

    def __init__(self, runtime: Runtime) -> None:
        self._clock = runtime.clock
        self._prefix = runtime.entropy.new_id()[:_PREFIX_DIGITS]
        self._count = itertools.count(1)

    def of(self, head: RequestHead, *, from_peer: bool) -> RequestContext:
        """The context of the request with `head`. An id or a timeout that cannot be read counts as none; the front
        refuses such a timeout by `check_timeout`."""
        given = head.headers
        return RequestContext(
            _printable(given.get(_REQUEST_ID)) or f"{self._prefix}-{next(self._count)}",
            principal=named_principal(head) if from_peer else ANONYMOUS,
            client_id=_printable(given.get(_CLIENT_ID)),
            deadline_s=self._deadline_s(given[_TIMEOUT_MS]) if _TIMEOUT_MS in given else None,
            from_peer=from_peer,
            may_forward=not from_peer,
        )

    def _deadline_s(self, timeout: bytes) -> float | None:
        return self._clock.monotonic() + int(timeout) / 1000 if _DIGITS.fullmatch(timeout) else None


def check_timeout(head: RequestHead) -> None:
    """Raises `Invalid` if the head has a timeout that is no number of milliseconds up to `TIMEOUT_MS_MAX`."""
    timeout = head.headers.get(_TIMEOUT_MS)
    if timeout is not None and not (_DIGITS.fullmatch(timeout) and int(timeout) <= TIMEOUT_MS_MAX):
        name = headers.TIMEOUT_MS
        raise Invalid(f"{name} must be a number of milliseconds from 0 to {TIMEOUT_MS_MAX}", field=name)


def named_principal(head: RequestHead) -> str:
    """The principal that the head names. Only a proved peer may name one."""
    return _printable(head.headers.get(_PRINCIPAL)) or ANONYMOUS


def store_context(scope: Scope, context: RequestContext) -> None:
    """Store `context` where `context_of` finds it."""
    scope[_SCOPE_KEY] = context


def context_of(request: HTTPConnection) -> RequestContext:
    """The context of a request that came through `HttpFront`."""
    context: RequestContext = request.scope[_SCOPE_KEY]
    return context


def _printable(given: bytes | None) -> str:
    """`given` as text if it is printable ASCII without spaces and at most `ID_CHARACTERS_MAX` long, else empty."""
    return given.decode("ascii") if given is not None and _PRINTABLE.fullmatch(given) else ""
