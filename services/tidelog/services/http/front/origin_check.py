"""Refuses requests of web pages, except the pages of this broker and of the origins in ``http.origins.allowed``.

A browser sends a page's requests to any address that its user can reach, including a broker on a laptop or behind a
firewall. It puts the page's origin into `Origin` on every POST, and on every request whose answer the page wants to
read. A request with a foreign origin is refused before any work is done:

- A change, because a browser without CORS headers hides only the answer. The change itself would happen.
- A read, because it costs a read of the store and a place among the waiting requests, and its duration can reveal
  whether data exists.

Pages of an allowed origin may send requests and read answers. Their preflight requests (OPTIONS) are answered here, and
their answers carry CORS headers (https://fetch.spec.whatwg.org/#http-cors-protocol). A request with
`Sec-Fetch-Site: cross-site` but no `Origin` (an image, a script) is refused too, unless a user follows a link.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from tidelog.services.http.front.request_head import RequestHead
from tidelog.storage.errors import Invalid
from tidelog.wire import headers
from tidelog.wire.errors import OriginRefused

Headers = Sequence[tuple[bytes, bytes]]

_METHODS = b"GET, HEAD, POST, PATCH, DELETE"
_REQUEST_HEADERS = ", ".join(
    (
        "Content-Type",
        "Content-Encoding",
        "Last-Event-ID",
        headers.PRODUCER_ID,
        headers.PRODUCER_EPOCH,
        headers.SEQUENCE,
        headers.CLIENT_ID,
        headers.TIMEOUT_MS,
        headers.REQUEST_ID,
    )
).encode()
_ANSWER_HEADERS = ", ".join(
    (
        headers.NEXT_OFFSET,
        headers.HIGH_WATERMARK,
        headers.LOG_START_OFFSET,
        headers.LEADER,
        "Retry-After",
        headers.REQUEST_ID,
    )
).encode()
_PREFLIGHT_AGE_S = b"600"


class OriginCheck:
    """`own`: the advertised addresses of this broker; `allowed`: the foreign origins that may call it."""

    def __init__(self, own: Iterable[str], allowed: Iterable[str]) -> None:
        self._own = frozenset(origin.encode() for origin in own)
        self._granted = {origin.encode(): _grant(origin.encode()) for origin in map(_checked, allowed)}

    def check(self, head: RequestHead) -> Headers:
        """The CORS headers for the answer; none unless the origin is in `allowed`. Raises `OriginRefused`."""
        origin = head.headers.get(b"origin")
        if origin is None:
            _check_fetch_site(head)
            return ()
        if origin in self._granted:
            return self._granted[origin]
        if origin in self._own or _is_same_origin(origin, head.headers.get(b"host")):
            return ()
        raise OriginRefused(
            f"pages of {origin.decode('latin-1')[:120]!r} may not call this broker: to allow them, add the "
            "origin to the broker's http.origins.allowed"
        )


def is_preflight(head: RequestHead) -> bool:
    """Whether this is the preflight request of a browser."""
    return head.method == "OPTIONS" and b"access-control-request-method" in head.headers


PREFLIGHT_HEADERS: Headers = (
    (b"access-control-allow-methods", _METHODS),
    (b"access-control-allow-headers", _REQUEST_HEADERS),
    (b"access-control-max-age", _PREFLIGHT_AGE_S),
)
"""Further headers of the answer to a preflight request."""


def _grant(origin: bytes) -> Headers:
    return (
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _ANSWER_HEADERS),
        (b"vary", b"Origin"),
    )


def _checked(origin: str) -> str:
    parts = urlsplit(origin)
    if (
        parts.scheme not in ("http", "https")
        or not parts.netloc
        or origin != f"{parts.scheme}://{parts.netloc}".lower()
    ):
        raise Invalid(
            f"http.origins.allowed lists origins such as https://console.example.com, not {origin!r}",
            field="http.origins.allowed",
        )
    return origin


def _is_same_origin(origin: bytes, host: bytes | None) -> bool:
    """Compares host and port only, because a proxy may terminate TLS."""
    scheme, _, authority = origin.lower().partition(b"://")
    return host is not None and scheme in (b"http", b"https") and authority == host.lower()


def _check_fetch_site(head: RequestHead) -> None:
    if head.headers.get(b"sec-fetch-site") != b"cross-site":
        return
    if head.method != "GET" or head.headers.get(b"sec-fetch-mode") != b"navigate":
        raise OriginRefused("the page of another site sent this request, without an Origin")
