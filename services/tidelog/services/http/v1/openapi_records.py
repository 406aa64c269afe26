"""The OpenAPI descriptions of the calls that produce, read and delete records."""

from __future__ import annotations

import msgspec

from tidelog.services.http.bodies.json_body import RecordsForm
from tidelog.services.http.media import BODY_ENCODINGS, Media
from tidelog.services.http.v1 import openapi_parts as parts
from tidelog.services.http.v1.openapi_parts import TEXT, answer, body, header, operation, path, query, ref, whole
from tidelog.services.http.v1.request_forms import DeleteRecordsForm
from tidelog.wire import headers
from tidelog.wire.polls import PartRequest, PartsAnswer, PartsRequest, PartState, TopicRecord
from tidelog.wire.records import AppendedRecords, FetchAnswer, JsonRecord, ProduceAnswer
from tidelog.wire.staging import (
    OBJECT_NAME,
    PLACE,
    SINK_NAME,
    DeletedObjects,
    StagedObject,
    StagedPage,
    StagedRecords,
    staged_path,
)
from tidelog.wire.topic_log import (
    SPANS_MAX,
    PartitionLogDescription,
    SegmentDescription,
    SpanDescription,
    TopicLogDescription,
)
from tidelog.wire.topics import LogStartAnswer, OffsetAnswer, ResolvedOffset, ResolvedOffsets

_JSON, _NDJSON, _TEXT, _ARROW, _EVENTS, _STORED, _STAGED, _BYTES = (media.value for media in Media)
_INT32, _INT64 = whole(0, 2**31 - 1), whole(0, 2**63 - 1)
_LIMIT = whole(1, 2**63 - 1)
_PRODUCER_ID = {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"}
_START = {"type": "string", "pattern": r"^(earliest|latest|-?[0-9]{1,18}|@.+)$"}
_PLACE = {"type": "string", "pattern": r"^[0-9]{1,9}(\.[0-9]{1,18}\.[0-9]{1,18})?$"}
_FIELD = {"type": "string", "minLength": 1}
_TIME_MS = 1_763_712_000_000

_PARTITION = path("partition", _INT32, "Number of the partition.", 0)
_FRESH = query("fresh", parts.FLAG, "false: answer with the end that the leader knows, which may be outdated.", "true")
_BASE64 = query("encoding", {"enum": ["base64"]}, "base64: send every key and value as base64.", "base64")
_PRODUCE_PARAMETERS = (
    query("acks", {"enum": ["0", "1", "all"]}, "Answer at once (0), once buffered (1), once committed (all).", "all"),
    query("key_field", _FIELD, "NDJSON and text: the field with the key of a record.", "user.id"),
    query("timestamp_field", _FIELD, "NDJSON and text: the field with the timestamp of a record.", "at"),
    header("Content-Encoding", {"enum": list(BODY_ENCODINGS)}, "Compression of the body.", "identity"),
)
_PRODUCE_PARTITION_PARAMETERS = (
    query("expected_offset", _INT64, "Append only if this is the next offset of the partition.", 41),
    header(headers.PRODUCER_ID, _PRODUCER_ID, "Id of an idempotent producer.", "web-1"),
    header(headers.PRODUCER_EPOCH, _INT32, "Epoch of the producer.", 0),
    header(headers.SEQUENCE, _INT64, "Sequence number of the first record.", 0),
)
_CHOSEN = query("partitions", TEXT, "Only these partitions: a list of numbers and ranges.", "0-3,7")
_FETCH_PARAMETERS = (
    query("offset", _START, "N, earliest (default), latest, -N or @time.", "earliest"),
    query("max_records", _LIMIT, "The largest number of records.", 100),
    query("max_bytes", _LIMIT, "The approximate limit for the bytes of keys and values.", 1_048_576),
    query("wait_ms", _INT64, "How long to wait for a record if there is none.", 0),
    header("Last-Event-ID", TEXT, "Event streams: continue after this offset.", "41"),
)
_FOLLOW_PARAMETERS = (
    query("offset", _START, "Where each partition begins; default latest.", "latest"),
    query("wait_ms", _INT32, "JSON lines: end the answer after this time without a record.", 0),
    _CHOSEN,
    query("positions", {"type": "boolean"}, "JSON lines: send lines with the position, too.", True),
    header("Last-Event-ID", TEXT, "Continue from this position.", "0:41,1:7"),
)
_LOG_PARAMETERS = (
    _CHOSEN,
    query("min_offset", _INT64, "Only spans with records at or after this offset.", 0),
    query("max_offset", _INT64, "Only spans with records at or before this offset.", 1_000_000),
    query("min_timestamp", _INT64, "Only segments with records at or after this time, in ms since 1970.", _TIME_MS),
    query("max_timestamp", _INT64, "Only segments with records at or before this time, in ms since 1970.", _TIME_MS),
    query("shard", _INT32, "Only the partitions of this shard.", 0),
    query("limit", _LIMIT, f"The most spans of a page, at most {SPANS_MAX}.", SPANS_MAX),
    query("after", _PLACE, "`next` of the page before.", "0"),
)
_AT = query("at", _START, "A position, as `offset` of a fetch.", "@2026-01-31T12:00:00Z", required=True)

_RECORDS = {"records": [{"key": "user-1", "value": {"json": {"path": "/", "ms": 12}}}, {"value": "plain text"}]}
_BINARY = {"type": "string", "format": "binary"}
_ARROW_CONTENT = body(_ARROW, _BINARY, "(binary)")
_PRODUCE_BODY = {
    **body(_JSON, ref(RecordsForm), _RECORDS),
    **body(_NDJSON, TEXT, '{"path": "/", "ms": 12}\n{"path": "/about", "ms": 7}\n'),
    **body(_TEXT, TEXT, "a line\nanother line\n"),
    **_ARROW_CONTENT,
}
_APPENDED = answer(ProduceAnswer("web", (AppendedRecords(0, 41, 2, _TIME_MS),)))
_FETCHED = answer(FetchAnswer("web", 0, (JsonRecord(41, _TIME_MS, "user-1", "plain text", []),), 42, 42, 0))
_EVENT = 'id: 41\ndata: {"offset":41,"timestamp":1763712000000,"key":null,"value":"text","headers":[]}\n\n'
_STREAMED = {**body(_NDJSON, TEXT, "one record per line"), **body(_EVENTS, TEXT, _EVENT)}
_KEY = f"topics/web/{parts.EXAMPLE_ID}/0000-5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e.parquet"
_SPAN = SpanDescription(0, 0, 40, 41, 0)
_SEGMENT = SegmentDescription(_KEY, 0, 0, 4_096, "ab" * 32, _TIME_MS, _TIME_MS, 41, 1, (_SPAN,))
_ENDS = PartitionLogDescription(0, 0, 7, 0, 41, 0, 42)
_LOG = TopicLogDescription("web", parts.EXAMPLE_ID, "s3://bucket/log", (_ENDS,), (_SEGMENT,))

_PARTS = PartsRequest((PartRequest("web", 0, 41), PartRequest("web", 1, "earliest")), wait_ms=1_000)
_PARTS_FETCHED = answer(
    PartsAnswer(
        (PartState("web", 0, 42, 0, 42), PartState("web", 1, 0, 0, 0)),
        (TopicRecord(41, _TIME_MS, "user-1", "plain text", [], 0, "web"),),
    )
)

_SINK = path("sink", {"type": "string", "pattern": f"^{SINK_NAME}$"}, "Name of the sink.", "orders-7")
_STAGED_OBJECT = (
    _SINK,
    path("batch", _INT64, "Number of the batch.", 7),
    path("name", {"type": "string", "pattern": f"^{OBJECT_NAME}$"}, "Name of the object.", "0-5e5e.arrow"),
)
_STAGED_RECORDS = StagedRecords("orders-7", 7, "0-5e5e.arrow", 0, 4_096, 3_735_928_559, 100, 0)
_STAGED_PLACE = staged_path(7, "committed")
_PLACE_OF_STAGED = {"type": "string", "pattern": f"^{PLACE}$"}

_PRODUCED = {200: _APPENDED, 202: _APPENDED}
_PRODUCE_REFUSALS = (400, 404, 408, 409, 413, 415, 422)
_STAGE_REFUSALS = (400, 408, 409, 413, 415, 422)
_READ_REFUSALS = (400, 404, 406, 416, 422, 500)
_ONE = (parts.TOPIC, _PARTITION)

PRODUCE = operation("POST", "produce", _PRODUCED, _PRODUCE_REFUSALS, (parts.TOPIC, *_PRODUCE_PARAMETERS), _PRODUCE_BODY)
PRODUCE_PARTITION = operation(
    "POST",
    "produce",
    _PRODUCED,
    _PRODUCE_REFUSALS,
    (*_ONE, *_PRODUCE_PARAMETERS, *_PRODUCE_PARTITION_PARAMETERS),
    {**_PRODUCE_BODY, **body(_STAGED, ref(StagedRecords), msgspec.to_builtins(_STAGED_RECORDS))},
)
STAGE = operation("PUT", "produce", {201: None}, _STAGE_REFUSALS, _STAGED_OBJECT, body(_BYTES, _BINARY, "(binary)"))
STAGED = operation("GET", "produce", {200: body(_BYTES, _BINARY, "(binary)")}, (400, 404, 406, 422), _STAGED_OBJECT)
STAGED_PAGE = operation(
    "GET",
    "produce",
    {200: answer(StagedPage((StagedObject(7, "committed", 512, _TIME_MS),)))},
    (400, 406, 422),
    (_SINK, query("after", _PLACE_OF_STAGED, "`next` of the page before.", _STAGED_PLACE)),
)
DELETE_STAGED = operation(
    "DELETE",
    "produce",
    {200: answer(DeletedObjects(3))},
    (400, 406, 422),
    (_SINK, query("before", _PLACE_OF_STAGED, "Only objects before this place.", _STAGED_PLACE)),
)
FETCH = operation(
    "GET",
    "fetch",
    {200: {**_FETCHED, **_STREAMED, **_ARROW_CONTENT}},
    _READ_REFUSALS,
    (*_ONE, *_FETCH_PARAMETERS, _BASE64, _FRESH),
)
FOLLOW = operation("GET", "fetch", {200: _STREAMED}, _READ_REFUSALS, (parts.TOPIC, *_FOLLOW_PARAMETERS, _BASE64))
LOG = operation("GET", "fetch", {200: answer(_LOG)}, (400, 404, 406, 409, 422), (parts.TOPIC, *_LOG_PARAMETERS, _FRESH))
OFFSET = operation("GET", "fetch", {200: answer(OffsetAnswer(41))}, _READ_REFUSALS, (*_ONE, _AT, _FRESH))
OFFSETS = operation(
    "GET",
    "fetch",
    {200: answer(ResolvedOffsets((ResolvedOffset(0, 41), ResolvedOffset(1, 7))))},
    _READ_REFUSALS,
    (parts.TOPIC, _AT, _CHOSEN, _FRESH),
)
FETCH_PARTS = operation(
    "POST",
    "fetch",
    {
        200: {
            **_PARTS_FETCHED,
            **body(_NDJSON, TEXT, "one record per line, then the answer"),
            **_ARROW_CONTENT,
            **body(_STORED, _BINARY, "(binary)"),
        }
    },
    (400, 406, 408, 413, 415, 422, 500),
    (_BASE64,),
    body(_JSON, ref(PartsRequest), msgspec.to_builtins(_PARTS)),
)
DELETE_RECORDS = operation(
    "POST",
    "topics",
    {200: answer(LogStartAnswer(0))},
    (*_PRODUCE_REFUSALS, 416),
    _ONE,
    body(_JSON, ref(DeleteRecordsForm), {"before_offset": 0}),
)
