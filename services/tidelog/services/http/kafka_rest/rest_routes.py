"""Finds the endpoint of a request by its path, one segment after the other.

Empty segments are left out, so each path is also found with a trailing slash, and ``positions//beginning`` as well. It
costs a dictionary lookup per segment. FastAPI is not used: its layers take longer than a produce of one record.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from tidelog.services.http.front.request_measurements import name_route
from tidelog.services.http.kafka_rest.rest_errors import Code, RestError

Endpoint: TypeAlias = Callable[[Request], Coroutine[Any, Any, Response]]


@dataclass
class _Node:
    """A place in the tree of paths. `template` is set if some path ends here."""

    children: dict[str, _Node] = field(default_factory=dict)
    parameter: str = ""
    inner: _Node | None = None
    template: str = ""
    methods: dict[str, Endpoint] = field(default_factory=dict)

    def child(self, segment: str) -> _Node:
        if segment.startswith("{"):
            if self.inner is None:
                self.parameter, self.inner = segment[1:-1], _Node()
            assert self.parameter == segment[1:-1], "a place has one name"
            return self.inner
        return self.children.setdefault(segment, _Node())


class RestRoutes:
    """The paths of the interface. A path belongs to it if its first segment does."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, method: str, template: str, endpoint: Endpoint) -> None:
        node = self._root
        for segment in template.strip("/").split("/"):
            node = node.child(segment)
        node.template = template
        node.methods[method] = endpoint

    def owns(self, path: str) -> bool:
        """Whether requests on `path` get answers of this interface."""
        return next(filter(None, path.split("/")), "") in self._root.children

    def find(self, scope: Scope) -> Endpoint:
        """The endpoint for a request on a path that this interface owns; its parameters are put into `scope`. Raises
        `RestError`."""
        node, parameters = self._root, {}
        path: str = scope["path"]
        for segment in filter(None, path.split("/")):
            following = node.children.get(segment)
            if following is None:
                following = node.inner
                parameters[node.parameter] = segment
            if following is None:
                raise RestError(Code.NOT_FOUND, f"there is no resource {path[:120]!r}")
            node = following
        if not node.template:
            raise RestError(Code.NOT_FOUND, f"there is no resource {path[:120]!r}")
        name_route(scope, node.template)
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        endpoint = node.methods.get(method)
        if endpoint is None:
            raise RestError(
                Code.METHOD_NOT_ALLOWED, f"{method[:20]} is not allowed here: use {' or '.join(sorted(node.methods))}"
            )
        scope["path_params"] = parameters
        return endpoint
