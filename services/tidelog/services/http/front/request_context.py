"""What is known of a request besides its content: who sent it, under which id, and until when it matters.

`HttpFront` makes one `RequestContext` for each request and stores it in the ASGI scope. A route reads it by
`context_of(request)`. Nothing in it comes from a header that a client can use to gain a right: `from_peer` is proved.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import HTTPConnection
from starlette.types import Scope

ANONYMOUS = "anonymous"
"""The principal of every request while there is no authentication of clients."""
_SCOPE_KEY = "tidelog.request_context"


@dataclass(frozen=True, slots=True)
class RequestContext:
    """`client_id`: how the client calls itself, empty if it does not. `deadline_s`: the time on the monotonic clock
    after which nobody waits for the answer, None if there is none. `from_peer`: another broker of this cluster sent it,
    so it is answered here or refused, and never sent on."""

    request_id: str
    principal: str = ANONYMOUS
    client_id: str = ""
    deadline_s: float | None = None
    from_peer: bool = False


def store_context(scope: Scope, context: RequestContext) -> None:
    """Let `context_of` find `context`."""
    scope[_SCOPE_KEY] = context


def context_of(request: HTTPConnection) -> RequestContext:
    """The context of a request that came through `HttpFront`."""
    context: RequestContext = request.scope[_SCOPE_KEY]
    return context
