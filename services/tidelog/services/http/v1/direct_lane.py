"""Produce and fetch of one partition, and produce to a topic, answered without a router and its middleware.

They are most of what a broker is asked, and what FastAPI and Starlette do around an endpoint (six layers of middleware,
a regular expression for each route, an exit stack) takes longer than a produce of a hundred records. So these paths are
told by their shape before all that. Everything else goes to the application, and so do these paths under another
method: the routes stand there too, for the OpenAPI description and for what is refused (404, 405).
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tidelog.services.http.front.request_measurements import name_route
from tidelog.services.http.v1.direct_route import Endpoint
from tidelog.storage.errors import Overloaded

RECORDS = "/v1/topics/{topic}/records"
PARTITION_RECORDS = "/v1/topics/{topic}/partitions/{partition}/records"
Teller = Callable[[Request, Exception], Response]
"""How an error that left an endpoint is answered."""


class DirectLane:
    """`inner` with a shorter way to `produce` and `fetch`."""

    def __init__(self, inner: ASGIApp, produce: Endpoint, fetch: Endpoint, tell: Teller) -> None:
        self._inner = inner
        self._produce = produce
        self._fetch = fetch
        self._tell = tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoint(scope) if scope["type"] == "http" else None
        if endpoint is None:
            await self._inner(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            response = await endpoint(request)
        except Exception as error:
            response = self._tell(request, error)
        try:
            await response(scope, receive, send)
        except Overloaded as error:  # `Connections.hold` had no place for a stream, of which nothing was sent yet
            await self._tell(request, error)(scope, receive, send)

    def _endpoint(self, scope: Scope) -> Endpoint | None:
        """Who answers, with the path's parameters put into `scope`; None if that is for the router to say."""
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
