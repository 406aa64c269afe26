"""Answers produces and fetches without FastAPI's router and middleware.

Most requests are produces and fetches. Around an endpoint FastAPI and Starlette run six layers of middleware, a regular
expression per route, a dependency solver and an exit stack, which takes longer than a produce of a hundred records. So
`DirectLane` recognizes these requests by their path. All other requests go to the application. It has the routes of
produce and fetch, too: for OpenAPI, and for requests with another method (405).

The other routes are `DirectRoute`s: their endpoints take a `Request` and return a `Response`, without the dependency
solver. FastAPI's documented seam for this is `APIRoute.get_route_handler`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tidelog.services.http.front.http_front import AnswerError
from tidelog.services.http.front.request_measurements import name_route
from tidelog.storage.errors import Overloaded

RECORDS = "/v1/topics/{topic}/records"
PARTITION_RECORDS = "/v1/topics/{topic}/partitions/{partition}/records"
Endpoint: TypeAlias = Callable[[Request], Coroutine[Any, Any, Response]]


class DirectRoute(APIRoute):
    """A route whose endpoint handles the request itself."""

    def get_route_handler(self) -> Endpoint:
        endpoint: Endpoint = self.endpoint
        return endpoint


class DirectLane:
    """Calls `produce` and `fetch` directly, and `inner` for all other requests."""

    def __init__(self, inner: ASGIApp, produce: Endpoint, fetch: Endpoint, answer_error: AnswerError) -> None:
        self._inner = inner
        self._produce = produce
        self._fetch = fetch
        self._answer_error = answer_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoint(scope) if scope["type"] == "http" else None
        if endpoint is None:
            await self._inner(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            response = await endpoint(request)
        except Exception as error:
            response = self._answer_error(request, error)
        try:
            await response(scope, receive, send)
        except Overloaded as error:  # `WaitingRequests.hold` had no place; nothing was sent
            await self._answer_error(request, error)(scope, receive, send)

    def _endpoint(self, scope: Scope) -> Endpoint | None:
        """The endpoint for this request, after the parameters of its path were put into `scope`; None for the
        router."""
        if scope.get("root_path"):
            return None
        match scope["method"], scope["path"].split("/"):
            case "POST", ["", "v1", "topics", topic, "records"] if topic:
                scope["path_params"] = {"topic": topic}
                name_route(scope, RECORDS)
                return self._produce
            case "POST" | "GET" as method, ["", "v1", "topics", topic, "partitions", partition, "records"] if (
                topic and partition
            ):
                scope["path_params"] = {"topic": topic, "partition": partition}
                name_route(scope, PARTITION_RECORDS)
                return self._produce if method == "POST" else self._fetch
        return None
