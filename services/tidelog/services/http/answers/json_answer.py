"""Answers with a type of `wire`, as JSON."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from tidelog.services.http.media import Media

_ENCODER = msgspec.json.Encoder()


def json_answer(answer: msgspec.Struct, status: int = 200) -> Response:
    """The response with `answer`."""
    return Response(_ENCODER.encode(answer), status, media_type=Media.JSON.value)
