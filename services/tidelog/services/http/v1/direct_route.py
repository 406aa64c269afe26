"""Routes that take a `Request` and give a `Response`, without FastAPI's dependency solver between.

The solver costs more than a whole produce of one small record. FastAPI's documented seam for this is `APIRoute.
get_route_handler`; the route stays in the OpenAPI description, which each route gives itself.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]


class DirectRoute(APIRoute):
    """An API route whose endpoint is its handler."""

    def get_route_handler(self) -> Endpoint:
        endpoint: Endpoint = self.endpoint
        return endpoint
