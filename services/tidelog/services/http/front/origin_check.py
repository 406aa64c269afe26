"""Which web pages may call this broker: those that it serves itself, and those of ``http.origins.allowed``.

A browser sends a page's requests to any address that the user can reach, so to a broker on a laptop or behind a
firewall too. It names the page's origin in `Origin`, on every POST and on every request whose answer the page wants to
read. A request with a foreign origin is refused before anything is done:

- a change, since the browser shows the page only the answer it may not read, after the change was made;
- a read as well: the page could not read the answer, but it would cost a read of the store, hold a place among the
  waiting requests, and tell by its duration what there is.

A page of an allowed origin may read answers and send what the API knows. Its preflight request (OPTIONS) is answered
here, and its answers carry the CORS headers (https://fetch.spec.whatwg.org/#http-cors-protocol). Nobody else gets them.
`Sec-Fetch-Site: cross-site` without an `Origin` (an image, a script) is refused too, unless a user
follows a link.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from tidelog.services.http.answers.verdicts import OriginRefused
from tidelog.services.http.front.request_head import RequestHead
from tidelog.storage.errors import Invalid

Headers = Sequence[tuple[bytes, bytes]]

_METHODS = b"GET, HEAD, POST, PATCH, DELETE"
_REQUEST_HEADERS = (
    b"Content-Type, Content-Encoding, Last-Event-ID, Tidelog-Producer-Id, Tidelog-Producer-Epoch, Tidelog-Sequence, "
    b"Tidelog-Client-Id, Tidelog-Timeout-Ms, X-Request-Id"
)
_ANSWER_HEADERS = (
    b"Tidelog-Next-Offset, Tidelog-High-Watermark, Tidelog-Log-Start-Offset, Tidelog-Leader, Retry-After, X-Request-Id"
)
_PREFLIGHT_AGE_S = b"600"


class OriginCheck:
    """`own`: the addresses by which this broker is advertised; `allowed`: the foreign origins that may call it."""

    def __init__(self, own: Iterable[str], allowed: Iterable[str]) -> None:
        self._own = frozenset(origin.encode() for origin in own)
        self._granted = {origin.encode(): _grant(origin.encode()) for origin in map(_checked, allowed)}

    def check(self, head: RequestHead) -> Headers:
        """The CORS headers of the answer, none unless the origin is an allowed one. Raises `OriginRefused`."""
        origin = head.headers.get(b"origin")
        if origin is None:
            _check_fetch_site(head)
            return ()
        if origin in self._granted:
            return self._granted[origin]
        if origin in self._own or _is_same_origin(origin, head.headers.get(b"host")):
            return ()
        raise OriginRefused(
            f"pages of {origin.decode('latin-1')[:120]!r} may not call this broker: add that origin to the broker's "
            "http.origins.allowed if they should"
        )


def is_preflight(head: RequestHead) -> bool:
    """Whether a browser asks what a page may send."""
    return head.method == "OPTIONS" and b"access-control-request-method" in head.headers


PREFLIGHT_HEADERS: Headers = (
    (b"access-control-allow-methods", _METHODS),
    (b"access-control-allow-headers", _REQUEST_HEADERS),
    (b"access-control-max-age", _PREFLIGHT_AGE_S),
)
"""What the answer to a preflight request has besides the headers of every answer to an allowed origin."""


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
            f"http.origins.allowed has origins as https://console.example.com, not {origin!r}",
            field="http.origins.allowed",
        )
    return origin


def _is_same_origin(origin: bytes, host: bytes | None) -> bool:
    """By host and port alone: a proxy may have undone TLS."""
    scheme, _, authority = origin.lower().partition(b"://")
    return host is not None and scheme in (b"http", b"https") and authority == host.lower()


def _check_fetch_site(head: RequestHead) -> None:
    if head.headers.get(b"sec-fetch-site") != b"cross-site":
        return
    if head.method != "GET" or head.headers.get(b"sec-fetch-mode") != b"navigate":
        raise OriginRefused("a page of another site sent this request, and its browser does not say which: refused")
