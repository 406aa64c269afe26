"""Media types of bodies and answers, and content negotiation (RFC 9110, sections 8.3 and 12.5.1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum

from starlette.requests import Request

from tidelog.storage.errors import UnsupportedMedia
from tidelog.wire.errors import NotAcceptable
from tidelog.wire.polls import STORED_MEDIA
from tidelog.wire.staging import STAGED_RECORDS_MEDIA


class Media(Enum):
    """The media types of the interface."""

    JSON = "application/json"
    NDJSON = "application/x-ndjson"
    TEXT = "text/plain"
    ARROW = "application/vnd.apache.arrow.stream"
    EVENTS = "text/event-stream"
    STORED = STORED_MEDIA
    STAGED = STAGED_RECORDS_MEDIA
    BYTES = "application/octet-stream"


BODY_MEDIA = (Media.JSON, Media.NDJSON, Media.TEXT, Media.ARROW)
PARTITION_BODY_MEDIA = (*BODY_MEDIA, Media.STAGED)
"""What a produce to one partition takes."""
BODY_ENCODINGS = ("identity", "gzip", "zstd")
_CODECS = re.compile(r';\s*codecs="?([^";]*)')
_CHARSETS = ("utf-8", "utf8", "us-ascii")


def body_media(request: Request, known: Sequence[Media] = BODY_MEDIA) -> Media:
    """The media type of the request's body. Raises `UnsupportedMedia` unless it is one of `known`, in UTF-8."""
    kind, _, parameters = request.headers.get("content-type", "").partition(";")
    found = next((media for media in known if media.value == kind.strip().lower()), None)
    if found is None:
        names = tuple(media.value for media in known if media is not Media.STAGED)  # only sinks send that
        raise UnsupportedMedia(
            f"Content-Type {kind.strip()[:80]!r} is not supported: send {' or '.join(names)}", known=names
        )
    if parameters:
        _check_charset(parameters)
    return found


def _check_charset(parameters: str) -> None:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip().strip('"').lower() not in _CHARSETS:
            raise UnsupportedMedia(f"charset {value.strip()[:40]!r} is not supported: send UTF-8", known=("utf-8",))


def body_encoding(request: Request) -> str:
    """The Content-Encoding of the request's body. Raises `UnsupportedMedia` unless it is one of `BODY_ENCODINGS`."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in BODY_ENCODINGS:
        raise UnsupportedMedia(
            f"Content-Encoding {encoding[:40]!r} is not supported: send {' or '.join(BODY_ENCODINGS)}",
            known=BODY_ENCODINGS,
        )
    return encoding


def answer_media(request: Request, offered: Sequence[Media]) -> Media:
    """The media type of `offered` that Accept prefers; the first one is the default. Raises `NotAcceptable`."""
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
        raise NotAcceptable(f"Accept {accept[:120]!r} is not available: ask for {' or '.join(names)}", known=names)
    return offered[-best_place]


def answer_codec(request: Request, known: Sequence[str]) -> str | None:
    """The first of the ``codecs`` that Accept names and that is `known`; None: do not compress. Arrow's own HTTP
    conventions have this parameter: ``Accept: application/vnd.apache.arrow.stream; codecs=zstd``."""
    named = _CODECS.search(request.headers.get("accept", ""))
    wanted = [name.strip().lower() for name in named[1].split(",")] if named else []
    return next((name for name in wanted if name in known), None)


def _media_range(item: str) -> tuple[str, float]:
    name, *parameters = (part.strip().lower() for part in item.split(";"))
    weight = next((part[2:] for part in parameters if part.startswith("q=")), "1")
    try:
        return name, min(1.0, max(0.0, float(weight)))
    except ValueError:
        return name, 0.0


def _weight(name: str, ranges: Sequence[tuple[str, float]]) -> float:
    """The weight by the most exact range that matches `name`: the type itself, then ``type/*``, then ``*/*``."""
    given = dict(ranges)
    for pattern in (name, f"{name.split('/')[0]}/*", "*/*"):
        if pattern in given:
            return given[pattern]
    return 0.0
