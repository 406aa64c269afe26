"""Headers of a request or an answer that a broker passes on to the next hop (RFC 9110, section 7.6.1).

Headers of one connection are not passed on. Each broker sets `Date`, the context's headers and its proof itself. The
broker that a browser asked has checked `Origin` and the `Sec-Fetch-` headers; they are not passed on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from starlette.requests import Request

_OF_ONE_HOP = frozenset(
    {
        b"connection",
        b"date",
        b"expect",
        b"host",
        b"keep-alive",
        b"origin",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"sec-fetch-mode",
        b"sec-fetch-site",
        b"te",
        b"tidelog-client-id",
        b"tidelog-peer",
        b"tidelog-principal",
        b"tidelog-timeout-ms",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"x-request-id",
    }
)

Raw = Iterable[tuple[bytes, bytes]]
"""Header names and values, not decoded."""


def request_headers(request: Request) -> list[tuple[str, str]]:
    """The client's headers for a peer. Content-Length goes with the body. A header that is not ASCII means nothing to a
    broker and is left out."""
    return [
        (name.decode("ascii"), value.decode("ascii"))
        for name, value in _passed_on(request.headers.raw)
        if name != b"content-length" and name.isascii() and value.isascii()
    ]


def answer_headers(raw: Raw) -> list[tuple[bytes, bytes]]:
    """The headers of a peer's answer that the client gets. The length of the body does not change."""
    return _passed_on(raw)


def _passed_on(raw: Raw) -> list[tuple[bytes, bytes]]:
    lower = [(name.lower(), value) for name, value in raw]
    named = frozenset(_named_by_connection(lower))
    return [(name, value) for name, value in lower if name not in _OF_ONE_HOP and name not in named]


def _named_by_connection(headers: Sequence[tuple[bytes, bytes]]) -> Iterable[bytes]:
    for name, value in headers:
        if name == b"connection":
            yield from (part.strip().lower() for part in value.split(b","))
