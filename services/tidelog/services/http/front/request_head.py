"""The head of a request, for the checks of the front: raw bytes, header names in lower case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.types import Scope


@dataclass(slots=True)
class RequestHead:
    """`path` is decoded, `raw_path` is not. If a header occurs twice, `headers` has the first."""

    method: str
    path: str
    raw_path: bytes
    query: bytes
    headers: Mapping[bytes, bytes]

    @property
    def target(self) -> str:
        """Path and query, not decoded."""
        raw = self.raw_path + b"?" + self.query if self.query else self.raw_path
        return raw.decode("latin-1")


def head_of(scope: Scope) -> RequestHead:
    """The head in an ASGI scope."""
    path: str = scope["path"]
    return RequestHead(
        scope["method"],
        path,
        scope.get("raw_path") or path.encode(),
        scope["query_string"],
        dict(reversed(scope["headers"])),
    )
