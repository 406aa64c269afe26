"""Media types: which body a request carries, and which answer it wants (RFC 9110, sections 8.3 and 12.5.1)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from starlette.requests import Request

from tidelog.services.http.answers.problems import NotAcceptable
from tidelog.storage.errors import UnsupportedMedia


class Media(Enum):
    """The media types spoken here."""

    JSON = "application/json"
    NDJSON = "application/x-ndjson"
    TEXT = "text/plain"
    ARROW = "application/vnd.apache.arrow.stream"
    EVENTS = "text/event-stream"


BODY_MEDIA = (Media.JSON, Media.NDJSON, Media.TEXT, Media.ARROW)
BODY_ENCODINGS = ("identity", "gzip", "zstd")
_CHARSETS = ("utf-8", "utf8", "us-ascii")


def body_media(request: Request, known: Sequence[Media] = BODY_MEDIA) -> Media:
    """The type of the request's body. `UnsupportedMedia` without a Content-Type, with another, or another charset."""
    kind, _, parameters = request.headers.get("content-type", "").partition(";")
    found = next((media for media in known if media.value == kind.strip().lower()), None)
    if found is None:
        names = tuple(media.value for media in known)
        raise UnsupportedMedia(
            f"Content-Type {kind.strip()[:80]!r} is not read here: send {' or '.join(names)}", known=names
        )
    if parameters:
        _check_charset(parameters)
    return found


def _check_charset(parameters: str) -> None:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip().strip('"').lower() not in _CHARSETS:
            raise UnsupportedMedia(f"charset {value.strip()[:40]!r} is not read here: send UTF-8", known=("utf-8",))


def body_encoding(request: Request) -> str:
    """The one Content-Encoding of the request's body: identity, gzip or zstd."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in BODY_ENCODINGS:
        raise UnsupportedMedia(
            f"Content-Encoding {encoding[:40]!r} is not undone here: send {' or '.join(BODY_ENCODINGS)}",
            known=BODY_ENCODINGS,
        )
    return encoding


def answer_media(request: Request, offered: Sequence[Media]) -> Media:
    """The best of `offered` (the first is the default) by the request's Accept; `NotAcceptable` if none will do."""
    accept = request.headers.get("accept")
    if not accept or accept == "*/*":
        return offered[0]
    exact = next((media for media in offered if media.value == accept), None)
    if exact is not None:
        return exact
    ranges = [_media_range(item) for item in accept.split(",")]
    weighed = [(_weight(media.value, ranges), -place) for place, media in enumerate(offered)]
    best_weight, best_place = max(weighed)
    if best_weight <= 0:
        names = tuple(media.value for media in offered)
        raise NotAcceptable(f"Accept {accept[:120]!r} cannot be met: ask for {' or '.join(names)}", known=names)
    return offered[-best_place]


def _media_range(item: str) -> tuple[str, float]:
    name, *parameters = (part.strip().lower() for part in item.split(";"))
    weight = next((part[2:] for part in parameters if part.startswith("q=")), "1")
    try:
        return name, min(1.0, max(0.0, float(weight)))
    except ValueError:
        return name, 0.0


def _weight(name: str, ranges: Sequence[tuple[str, float]]) -> float:
    """What the most exact range that fits `name` gives it: the type itself before ``type/*`` before ``*/*``."""
    given = dict(ranges)
    for pattern in (name, f"{name.split('/')[0]}/*", "*/*"):
        if pattern in given:
            return given[pattern]
    return 0.0
