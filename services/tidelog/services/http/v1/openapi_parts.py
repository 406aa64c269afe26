"""Builds the OpenAPI description (https://spec.openapis.org/oas/v3.1.0): schemas from the msgspec types, and the
description of one call as the keyword arguments of `APIRouter.add_api_route`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from tidelog.services.http.bodies.json_body import RecordsForm
from tidelog.services.http.v1.request_forms import AlterForm, CreateForm, DeleteRecordsForm
from tidelog.storage.stores.counting import RequestCounts
from tidelog.wire.cluster import ClusterDescription, HealthAnswer, ReadyAnswer
from tidelog.wire.costs import CostDescription
from tidelog.wire.errors import PROBLEM_MEDIA, Problem
from tidelog.wire.groups import (
    CommitOffsets,
    CommittedOffset,
    DeleteOffsets,
    Done,
    FetchOffsets,
    GroupDescription,
    GroupPage,
    GroupRequest,
    Heartbeat,
    HeartbeatAnswer,
    OffsetsAnswer,
    PartitionOffset,
)
from tidelog.wire.polls import (
    LagAnswer,
    PartsAnswer,
    PartsRequest,
    PartState,
    PollAnswer,
    PollRequest,
    SeekAnswer,
    SeekRequest,
)
from tidelog.wire.records import FetchAnswer, ProduceAnswer
from tidelog.wire.staging import DeletedObjects, StagedPage, StagedRecords
from tidelog.wire.topic_log import TopicLogDescription
from tidelog.wire.topics import (
    ListedPartition,
    LogStartAnswer,
    OffsetAnswer,
    TopicDescription,
    TopicPage,
)

Json = dict[str, Any]
"""A piece of an OpenAPI document."""

TEXT: Json = {"type": "string"}
FLAG: Json = {"type": "string", "enum": ["true", "false"]}
TAG = GroupRequest.__struct_config__.tag_field
EXAMPLE_ID = "0123456789abcdef0123456789abcdef"

_FORMS: tuple[type[msgspec.Struct], ...] = (
    RecordsForm,
    CreateForm,
    AlterForm,
    DeleteRecordsForm,
    PartsRequest,
    Heartbeat,
    CommitOffsets,
    FetchOffsets,
    DeleteOffsets,
    SeekRequest,
    PollRequest,
    StagedRecords,
)
_ANSWERS: tuple[type[msgspec.Struct], ...] = (
    ProduceAnswer,
    FetchAnswer,
    PartsAnswer,
    PartState,
    PollAnswer,
    PartitionOffset,
    CommittedOffset,
    HeartbeatAnswer,
    Done,
    OffsetsAnswer,
    GroupDescription,
    GroupPage,
    SeekAnswer,
    LagAnswer,
    OffsetAnswer,
    LogStartAnswer,
    TopicLogDescription,
    TopicDescription,
    TopicPage,
    ListedPartition,
    StagedPage,
    DeletedObjects,
    ClusterDescription,
    CostDescription,
    HealthAnswer,
    ReadyAnswer,
    Problem,
)
_REF = "#/components/schemas/{name}"
_REFUSALS = {
    400: "The request cannot be read.",
    401: "Tidelog-Peer does not prove that a broker of this cluster sent the request.",
    403: "The Host or the Origin is not allowed.",
    404: "The topic, partition or broker does not exist.",
    406: "The call has no answer in a media type that Accept allows.",
    408: "The body did not arrive in time.",
    409: "The request conflicts with the state of the log or the cluster.",
    413: "The request is larger than a limit.",
    415: "The call does not read bodies of this media type.",
    416: "The offset is out of range. The problem holds the range.",
    422: "The request can be read, but it is not allowed.",
    500: "An object in the bucket is damaged.",
    503: "The broker is overloaded or stopping, no broker leads the shard, or the store is unavailable. Send the "
    "request again after Retry-After.",
}
_FROM_THE_FRONT = (400, 401, 403)
"""The front may refuse any call with these, before its route sees it."""


def add_schemas(description: Json) -> Json:
    """`description` with the schemas of all forms and answers."""
    _, forms = msgspec.json.schema_components(_FORMS, ref_template=_REF)
    _, answers = msgspec.json.schema_components(_ANSWERS, ref_template=_REF)
    for schema in forms.values():
        _leave_out_tag(schema)
    omitting = {kind.__name__ for kind in _ANSWERS if kind.__struct_config__.omit_defaults}
    for name, schema in answers.items():
        _close_answer(schema, omits_defaults=name in omitting)
    for count in answers[RequestCounts.__name__]["properties"].values():
        count["minimum"] = 0
    schemas = forms | answers
    for schema in schemas.values():
        schema["description"] = inspect.cleandoc(schema["description"])
    description["components"] = {"schemas": schemas}
    return description


def _leave_out_tag(schema: Json) -> None:
    """The path determines the type of the request, so its body may lack the type tag that is needed elsewhere."""
    if TAG in schema.get("required", ()):
        schema["required"].remove(TAG)


def _close_answer(schema: Json, *, omits_defaults: bool) -> None:
    """msgspec describes what a decoder accepts. A server sends more exactly: a member with a default is either always
    in an answer, or it is left out instead of being sent with its default."""
    for name, member in schema["properties"].items():
        if "default" not in member:
            continue
        default = member.pop("default")
        if not omits_defaults:
            schema["required"].append(name)
        elif default is None:
            schema["properties"][name] = member["anyOf"][0]


def ref(kind: type[msgspec.Struct]) -> Json:
    """A reference to the schema of `kind`."""
    return {"$ref": _REF.format(name=kind.__name__)}


def whole(low: int, high: int) -> Json:
    return {"type": "integer", "minimum": low, "maximum": high}


def path(name: str, schema: Json, description: str, example: object) -> Json:
    return query(name, schema, description, example, required=True) | {"in": "path"}


def header(name: str, schema: Json, description: str, example: object) -> Json:
    return query(name, schema, description, example) | {"in": "header"}


def query(name: str, schema: Json, description: str, example: object, *, required: bool = False) -> Json:
    return {
        "in": "query",
        "name": name,
        "required": required,
        "description": description,
        "schema": schema,
        "examples": {"usual": {"value": example}},
    }


def body(media: str, schema: Json, example: object) -> Json:
    """The content of a request or an answer in one media type."""
    return {media: {"schema": schema, "example": example}}


def answer(example: msgspec.Struct) -> Json:
    """An answer of JSON, of the type of `example`."""
    return body("application/json", ref(type(example)), msgspec.to_builtins(example))


TOPIC = path("topic", {"type": "string", "pattern": "^[a-zA-Z0-9._-]{1,249}$"}, "Name of the topic.", "web")


def operation(
    method: str,
    tag: str,
    answers: Mapping[int, Json | None],
    refusals: Sequence[int] = (),
    parameters: Sequence[Json] = (),
    request: Json | None = None,
) -> Json:
    """The keyword arguments of `APIRouter.add_api_route` for one call. `answers`: the content by status. The
    description of the call is the docstring of its endpoint."""
    responses: Json = {
        str(status): {"description": "Success.", **({"content": content} if content else {})}
        for status, content in answers.items()
    }
    problem = {PROBLEM_MEDIA: {"schema": ref(Problem)}}
    for status in (*refusals, *_FROM_THE_FRONT, *((415,) if method == "POST" else ()), 503):
        responses[str(status)] = {"description": _REFUSALS[status], "content": problem}
    extra: Json = {"parameters": list(parameters), "responses": responses}
    if request is not None:
        extra["requestBody"] = {"required": True, "content": request}
    return {
        "methods": [method],
        "status_code": min(answers),
        "response_class": Response,
        "response_model": None,
        "tags": [tag],
        "openapi_extra": extra,
    }
