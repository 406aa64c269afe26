"""Reads the JSON body of a call that carries no records.

It is parsed on the event loop, so its size has a bound of its own, beside ``request.max.bytes``.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from starlette.requests import Request

from tidelog.services.http.bodies.body_reading import BodyReader
from tidelog.services.http.bodies.typed_json import parse_typed
from tidelog.services.http.media import Media, body_media

T = TypeVar("T")

CALL_BYTES_MAX = 4 << 20
"""Some 50,000 partitions with their offsets."""
_ADVICE = "name fewer partitions or topics per request"


async def read_call(bodies: BodyReader, request: Request, decoder: msgspec.json.Decoder[T]) -> T:
    """The body of `request`. Raises what is wrong with it."""
    body_media(request, (Media.JSON,))
    with bodies.in_flight(min(bodies.limit_bytes, CALL_BYTES_MAX), _ADVICE) as held:
        return parse_typed(decoder, await bodies.read(request, held))
