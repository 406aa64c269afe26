"""Writes a `RequestContext` as the headers of a call to a peer."""

from __future__ import annotations

from tidelog.services.broker.api.request_context import ANONYMOUS, RequestContext
from tidelog.wire import headers


def context_headers(context: RequestContext, now_s: float) -> list[tuple[str, str]]:
    """The headers from which the peer's front makes the same context. `now_s`: the time on the monotonic clock."""
    found = [(headers.REQUEST_ID, context.request_id)]
    if context.client_id:
        found.append((headers.CLIENT_ID, context.client_id))
    if context.principal != ANONYMOUS:
        found.append((headers.PRINCIPAL, context.principal))
    if context.deadline_s is not None:
        found.append((headers.TIMEOUT_MS, str(max(0, int((context.deadline_s - now_s) * 1000)))))
    return found
