"""Pieces that OpenAPI descriptions are put together from (https://spec.openapis.org/oas/v3.1.0)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from tidelog.services.http.answers.problems import PROBLEM_MEDIA

Json = dict[str, Any]
"""A piece of an OpenAPI document; it is data for FastAPI, and no other module looks into it."""

TEXT: Json = {"type": "string"}
COUNT: Json = {"type": "integer", "minimum": 0}

_REFUSALS = {
    "400": "cannot be read",
    "401": "Tidelog-Peer does not prove that a broker of this cluster sent the request",
    "403": "a Host or an Origin that is not allowed",
    "404": "no such topic or partition",
    "406": "no answer of that media type",
    "408": "the body did not arrive in time",
    "409": "another came first",
    "413": "over a limit",
    "415": "a media type not read here",
    "416": "out of range; says what the range is",
    "422": "read, but not allowed",
    "500": "an object in the bucket is damaged",
    "503": "overloaded, stopping, the shard between two brokers, or the store away; come back after Retry-After",
}
_OF_THE_FRONT = (400, 401, 403)
"""Statuses that any call may have before its route is reached."""
_PROBLEM: Json = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "request_id": TEXT,
        "type": TEXT,
        "title": TEXT,
        "status": {"type": "integer"},
        "detail": TEXT,
        "code": TEXT,
        "field": TEXT,
        "record": {"type": "integer"},
    },
}


def record_of(
    required: Mapping[str, Json], optional: Mapping[str, Json] | None = None, *, closed: bool = False
) -> Json:
    """An object schema; `closed` refuses other members."""
    schema: Json = {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}}
    return {**schema, "additionalProperties": False} if closed else schema


def list_of(items: Json, **bounds: int) -> Json:
    return {"type": "array", "items": items, **bounds}


def whole(low: int, high: int) -> Json:
    return {"type": "integer", "minimum": low, "maximum": high}


def or_null(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}]}


def path(name: str, schema: Json, description: str, example: object) -> Json:
    return _parameter("path", name, schema, description, example, required=True)


def query(name: str, schema: Json, description: str, example: object, *, required: bool = False) -> Json:
    return _parameter("query", name, schema, description, example, required=required)


def header(name: str, schema: Json, description: str, example: object) -> Json:
    return _parameter("header", name, schema, description, example, required=False)


def _parameter(where: str, name: str, schema: Json, description: str, example: object, *, required: bool) -> Json:
    return {
        "in": where,
        "name": name,
        "required": required,
        "description": description,
        "schema": schema,
        "examples": {"usual": {"value": example}},
    }


def body(media: str, schema: Json, example: object) -> Json:
    """What a body or an answer of one media type holds."""
    return {media: {"schema": schema, "example": example}}


def operation(
    method: str,
    tag: str,
    *,
    answers: Mapping[int, Json | None],
    description: str,
    refusals: Sequence[int],
    parameters: Sequence[Json] = (),
    request: Json | None = None,
) -> Json:
    """The keyword arguments of `APIRouter.add_api_route` for one call. `answers`: by status, content by media type."""
    responses: Json = {
        str(status): {"description": "as asked for", **({"content": content} if content else {})}
        for status, content in answers.items()
    }
    problem = {PROBLEM_MEDIA: {"schema": _PROBLEM}}
    for status in (*refusals, *_OF_THE_FRONT, *((415,) if method == "POST" else ()), 503):
        responses[str(status)] = {"description": _REFUSALS[str(status)], "content": problem}
    extra: Json = {"parameters": list(parameters), "responses": responses}
    if request is not None:
        extra["requestBody"] = {"required": True, "content": request}
    return {
        "methods": [method],
        "status_code": min(answers),
        "response_class": Response,
        "response_model": None,
        "description": description,
        "tags": [tag],
        "openapi_extra": extra,
    }
