"""The media types of Kafka's REST interface v2, and the formats of records that they name.

    application/vnd.kafka[.FORMAT].v2+json      FORMAT: json, binary, avro, jsonschema, protobuf

Without a FORMAT, records are `binary`. ``application/json`` stands for `json`. Bodies without records may have any of
these types.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache

from starlette.requests import Request

from tidelog.services.http.kafka_rest.rest_errors import Code, RestError
from tidelog.storage.errors import UnsupportedMedia
from tidelog.wire.errors import NotAcceptable

MANAGEMENT = "application/vnd.kafka.v2+json"
JSON = "application/json"
CACHED_MAX = 256
"""Headers whose meaning is cached."""

_KAFKA = re.compile(r"application/vnd\.kafka(?:\.(json|binary|avro|jsonschema|protobuf))?(?:\.v2)?\+json")
_CHARSETS = ("utf-8", "utf8", "us-ascii")


class Format(Enum):
    """How the keys and values of records are written in JSON."""

    JSON = "json"
    BINARY = "binary"
    AVRO = "avro"
    JSONSCHEMA = "jsonschema"
    PROTOBUF = "protobuf"

    @property
    def media_type(self) -> str:
        return f"application/vnd.kafka.{self.value}.v2+json"

    @property
    def has_schema(self) -> bool:
        return self not in (Format.JSON, Format.BINARY)


def body_format(request: Request) -> Format:
    """The format of the records in the request's body. Raises `UnsupportedMedia`."""
    return _body_format(request.headers.get("content-type", ""))


@lru_cache(CACHED_MAX)
def _body_format(content_type: str) -> Format:
    found = _format(content_type)
    if found is None:
        raise UnsupportedMedia(
            f"Content-Type {content_type[:80]!r} is not supported: send {Format.JSON.media_type} or "
            f"{Format.BINARY.media_type}"
        )
    if found.has_schema:
        raise UnsupportedMedia(not_yet(found))
    return found


def check_management_body(request: Request) -> None:
    """Check the type of a body without records. Raises `UnsupportedMedia`."""
    content_type = request.headers.get("content-type", "")
    if _format(content_type) is None:
        raise UnsupportedMedia(f"Content-Type {content_type[:80]!r} is not supported: send {MANAGEMENT}")


def management_media(request: Request) -> str:
    """The media type for an answer without records. Raises `NotAcceptable`."""
    return _management_media(request.headers.get("accept", ""))


@lru_cache(CACHED_MAX)
def _management_media(accept: str) -> str:
    for kind in _accepted(accept):
        if kind == JSON:
            return JSON
        if kind in ("*/*", "application/*") or _KAFKA.fullmatch(kind):
            return MANAGEMENT
    raise NotAcceptable(f"Accept {accept[:120]!r} is not available: ask for {MANAGEMENT}")


def answer_format(request: Request, own: Format | None = None) -> Format:
    """The format in which the client wants its records. `own`: the format of the consumer instance, which Accept must
    allow (40601). Raises `NotAcceptable`, `RestError`."""
    return _answer_format(request.headers.get("accept", ""), own)


@lru_cache(CACHED_MAX)
def _answer_format(accept: str, own: Format | None) -> Format:
    any_format = own or Format.BINARY
    formats = [any_format if kind in ("*/*", "application/*") else _format(kind) for kind in _accepted(accept)]
    known = [found for found in formats if found is not None]
    if not known:
        raise NotAcceptable(f"Accept {accept[:120]!r} is not available: ask for {(own or Format.JSON).media_type}")
    if own is not None:
        if own not in known:
            raise RestError(
                Code.FORMAT_MISMATCH,
                f"the consumer instance has the format {own.value}, and Accept names {known[0].value}: ask for "
                f"{own.media_type}",
            )
        return own
    if known[0].has_schema:
        raise NotAcceptable(not_yet(known[0]))
    return known[0]


def not_yet(found: Format) -> str:
    """Why a format with schemas is refused."""
    return f"the format {found.value} is not supported yet, because it needs a schema registry: use json or binary"


def _format(media_type: str) -> Format | None:
    """The format that a media type names; None if it is none of this interface, or not in UTF-8."""
    kind, _, parameters = media_type.partition(";")
    name = kind.strip().lower()
    for parameter in parameters.split(";"):
        key, _, value = parameter.partition("=")
        if key.strip().lower() == "charset" and value.strip().strip('"').lower() not in _CHARSETS:
            return None
    if name == JSON:
        return Format.JSON
    found = _KAFKA.fullmatch(name)
    return None if found is None else Format(found[1] or "binary")


def _accepted(accept: str) -> list[str]:
    """The types of an Accept header, the preferred ones first. All types if there is no header."""
    if not accept:
        return ["*/*"]
    weighed = []
    for item in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in item.split(";"))
        weighed.append((_weight(parameters), kind))
    return [kind for weight, kind in sorted(weighed, key=lambda pair: -pair[0]) if weight > 0]


def _weight(parameters: list[str]) -> float:
    given = next((parameter[2:] for parameter in parameters if parameter.startswith("q=")), "1")
    try:
        return float(given)
    except ValueError:
        return 0.0
