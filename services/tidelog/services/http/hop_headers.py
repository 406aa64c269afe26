"""Which headers of a request or an answer go on to the next hop (RFC 9110, section 7.6.1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_OF_ONE_HOP = frozenset(
    {
        b"connection",
        b"expect",
        b"host",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"tidelog-hop",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
LEADER_HEADER = "Tidelog-Leader"
"""In an answer: who leads the partition's shard."""
HOP_HEADER = "Tidelog-Hop"
"""In a request: a broker sent it on, so it is answered here or refused."""

Raw = Iterable[tuple[bytes, bytes]]
"""Header names and values as they came."""


def request_headers(raw: Raw) -> list[tuple[str, str]]:
    """What a peer is sent of a client's headers; not its Content-Length, which goes with the body. A value
    that is not ASCII means nothing to a broker and stays here."""
    return [
        (name.decode("ascii"), value.decode("ascii"))
        for name, value in _passed_on(raw)
        if name != b"content-length" and name.isascii() and value.isascii()
    ]


def answer_headers(raw: Raw) -> list[tuple[bytes, bytes]]:
    """What a client is sent of a peer's headers: the body's length stays what it was."""
    return _passed_on(raw)


def _passed_on(raw: Raw) -> list[tuple[bytes, bytes]]:
    lower = [(name.lower(), value) for name, value in raw]
    named = frozenset(_named_by_connection(lower))
    return [(name, value) for name, value in lower if name not in _OF_ONE_HOP and name not in named]


def _named_by_connection(headers: Sequence[tuple[bytes, bytes]]) -> Iterable[bytes]:
    for name, value in headers:
        if name == b"connection":
            yield from (part.strip().lower() for part in value.split(b","))
