"""The address under which a client reached the interface, for `base_uri` and for links.

Clients use `base_uri` as it is, so it must lead through the load balancer that they came through. Its host is, in this
order: `X-Forwarded-Host`, if the broker would accept it as a Host header (``http.hosts.allowed``); the Host header,
which the front has checked; the broker's own address. `X-Forwarded-Proto` and `X-Forwarded-Prefix` add ``https`` and a
path.

Any client may send these headers. They change only the answer to the request that they came with, and no page of
another site can send them without a preflight request.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from starlette.requests import Request

_PREFIX = re.compile(r"(?:/[A-Za-z0-9._~-]{1,100}){1,8}")
_SCHEMES = ("http", "https")


class SeenAddresses:
    """`allows`: whether a Host is a name of this broker. `own`: the broker's address."""

    def __init__(self, allows: Callable[[bytes], bool], own: str) -> None:
        self._allows = allows
        self._own = own

    def of(self, request: Request) -> str:
        """The address for the client of `request`, without a final slash."""
        host = self._forwarded_host(request) or request.headers.get("host")
        prefix = _first(request, "x-forwarded-prefix").rstrip("/")
        path = prefix if _PREFIX.fullmatch(prefix) else ""
        if not host:
            return self._own + path
        scheme = _first(request, "x-forwarded-proto").lower()
        return f"{scheme if scheme in _SCHEMES else 'http'}://{host}{path}"

    def _forwarded_host(self, request: Request) -> str:
        host = _first(request, "x-forwarded-host")
        return host if host and self._allows(host.encode("latin-1")) else ""


def _first(request: Request, name: str) -> str:
    """The first value of a header: that of the proxy that the client called."""
    return request.headers.get(name, "").partition(",")[0].strip()
