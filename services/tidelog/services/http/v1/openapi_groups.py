"""The OpenAPI descriptions of the calls on groups."""

from __future__ import annotations

import msgspec

from tidelog.services.http.media import Media
from tidelog.services.http.v1.openapi_parts import FLAG, TEXT, Json, answer, body, operation, path, query, ref, whole
from tidelog.wire.groups import (
    CommitOffsets,
    CommittedOffset,
    DeleteOffsets,
    Done,
    FetchOffsets,
    GroupDescription,
    GroupMemberDescription,
    GroupPage,
    Heartbeat,
    HeartbeatAnswer,
    ListedGroup,
    OffsetsAnswer,
    PartitionOffset,
    TopicPartitions,
)
from tidelog.wire.polls import (
    LagAnswer,
    PartitionLag,
    PartState,
    PollAnswer,
    PollRequest,
    SeekAnswer,
    SeekRequest,
    Sought,
    TopicRecord,
)

_JSON, _NDJSON, _ARROW = (media.value for media in (Media.JSON, Media.NDJSON, Media.ARROW))
_TIME_MS = 1_763_712_000_000
_MEMBER_ID = "3f0c5b9f7f3a4f0e8a4b1f2f6e1d9a77"

_GROUP = path("group", {"type": "string", "minLength": 1, "maxLength": 249}, "Name of the group.", "billing")
_LIST_PARAMETERS = (
    query("limit", whole(1, 2**63 - 1), "The largest number of groups: 1,000 by default and at most.", 100),
    query("after", TEXT, "The `next` of the previous page.", "billing"),
)
_TIMES = query("times", FLAG, "false: without lag_ms, which may cost requests to the store.", "true")
_BASE64 = query("encoding", {"enum": ["base64"]}, "base64: send every key and value as base64.", "base64")

_HELD = (TopicPartitions("web", (0, 1)),)
_AT = PartitionOffset(topic="web", partition=0, offset=42)
_MEMBER = GroupMemberDescription(
    member_id=_MEMBER_ID,
    client_id="billing-1",
    client_host="10.0.0.9",
    member_epoch=3,
    topics=("web",),
    assignment=_HELD,
    target=_HELD,
)
_DESCRIBED = GroupDescription(
    group="billing",
    kind="consumer",
    state="Stable",
    epoch=3,
    assignor="uniform",
    protocol_type="consumer",
    members=(_MEMBER,),
)
_COMMITTED = CommittedOffset(topic="web", partition=0, offset=42, committed_at_ms=_TIME_MS)
_POLL = PollRequest(topics=("web",), from_position="earliest", wait_ms=1_000)
_POLLED = PollAnswer(
    _MEMBER_ID,
    3,
    45_000,
    _HELD,
    (_AT,),
    (PartState("web", 0, 42, 0, 42),),
    (),
    (TopicRecord(41, _TIME_MS, "user-1", "plain text", [], 0, "web"),),
)

_READ_REFUSALS = (400, 404, 406, 422)
_CALL_REFUSALS = (400, 404, 406, 408, 409, 413, 415, 422)


def _form(example: msgspec.Struct) -> Json:
    return body(_JSON, ref(type(example)), msgspec.to_builtins(example))


def _call(example: msgspec.Struct, answered: msgspec.Struct) -> Json:
    """A POST on a group."""
    return operation("POST", "groups", {200: answer(answered)}, _CALL_REFUSALS, (_GROUP,), _form(example))


LIST = operation(
    "GET",
    "groups",
    {200: answer(GroupPage((ListedGroup("billing", "consumer"),), "billing"))},
    (400, 406, 422),
    _LIST_PARAMETERS,
)
DESCRIBE = operation("GET", "groups", {200: answer(_DESCRIBED)}, _READ_REFUSALS, (_GROUP,))
DELETE = operation("DELETE", "groups", {204: None}, (400, 404, 409, 422), (_GROUP,))
HEARTBEAT = _call(Heartbeat(topics=("web",)), HeartbeatAnswer(_MEMBER_ID, 3, 5_000, _HELD, 45_000))
COMMIT = _call(CommitOffsets(offsets=(_AT,), member_id=_MEMBER_ID, member_epoch=3), Done())
OFFSETS = _call(FetchOffsets(partitions=_HELD), OffsetsAnswer((_COMMITTED,)))
DELETE_OFFSETS = _call(DeleteOffsets(partitions=_HELD), Done())
SEEK = _call(SeekRequest("-1h", topics=("web",), dry_run=True), SeekAnswer((Sought("web", 0, 42, 17),), True))
LAG = operation(
    "GET",
    "groups",
    {200: answer(LagAnswer("billing", (PartitionLag("web", 0, 42, 0, 50, 8, 1_200, _MEMBER_ID),), 8, 1_200))},
    _READ_REFUSALS,
    (_GROUP, _TIMES),
)
POLL = operation(
    "POST",
    "groups",
    {
        200: {
            **answer(_POLLED),
            **body(_NDJSON, TEXT, "one record per line, then the answer"),
            **body(_ARROW, {"type": "string", "format": "binary"}, "(binary)"),
        }
    },
    (*_CALL_REFUSALS, 416, 500),
    (_GROUP, _BASE64),
    _form(_POLL),
)
