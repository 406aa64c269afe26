"""What `/openapi.json` and `/docs` say of each call: parameters, bodies, answers and refusals, with examples."""

from __future__ import annotations

from tidelog.services.http.v1.openapi_parts import (
    COUNT,
    TEXT,
    Json,
    body,
    header,
    list_of,
    operation,
    or_null,
    path,
    query,
    record_of,
    whole,
)

_JSON, _NDJSON, _TEXT = "application/json", "application/x-ndjson", "text/plain"
_ARROW, _EVENTS = "application/vnd.apache.arrow.stream", "text/event-stream"
_NO_EXAMPLE = "(binary)"
_INT64_MAX, _INT32_MAX = 2**63 - 1, 2**31 - 1

_TOPIC = path("topic", {"type": "string", "pattern": "^[a-zA-Z0-9._-]{1,249}$"}, "the topic's name", "web")
_PARTITION = path("partition", whole(0, _INT32_MAX), "the partition's number", 0)

_PAYLOAD: Json = {
    "anyOf": [
        TEXT,
        record_of({"base64": {"type": "string", "contentEncoding": "base64"}}, closed=True),
        record_of({"json": {}}, closed=True),
        {"type": "null"},
    ]
}
_RECORD_FORM = record_of(
    {"value": _PAYLOAD},
    {
        "key": _PAYLOAD,
        "timestamp": {
            "anyOf": [whole(0, 253_402_300_799_999), {"type": "string", "format": "date-time"}, {"type": "null"}]
        },
        "headers": or_null(list_of(record_of({"key": TEXT, "value": _PAYLOAD}, closed=True))),
        "partition": or_null(whole(0, _INT32_MAX)),
    },
    closed=True,
)
_PRODUCE_BODY: Json = {
    **body(
        _JSON,
        record_of({"records": list_of(_RECORD_FORM, minItems=1)}, closed=True),
        {"records": [{"key": "user-1", "value": {"json": {"path": "/", "ms": 12}}}, {"value": "plain text"}]},
    ),
    **body(_NDJSON, TEXT, '{"path": "/", "ms": 12}\n{"path": "/about", "ms": 7}\n'),
    **body(_TEXT, TEXT, "a line\nanother line\n"),
    **body(_ARROW, {"type": "string", "format": "binary"}, _NO_EXAMPLE),
}
_PRODUCED = record_of(
    {
        "topic": TEXT,
        "partitions": list_of(
            record_of(
                {"partition": COUNT, "base_offset": or_null(COUNT), "count": COUNT, "timestamp": {"type": "integer"}},
                {"duplicate": {"type": "boolean"}},
            )
        ),
    }
)
_PRODUCED_EXAMPLE = {
    "topic": "web",
    "partitions": [{"partition": 0, "base_offset": 41, "count": 2, "timestamp": 1_763_712_000_000}],
}
_PRODUCE_PARAMETERS = [
    query("acks", {"enum": ["0", "1", "all"]}, "when to answer: at once, once buffered, once committed", "all"),
    query("key_field", {"type": "string", "minLength": 1}, "NDJSON and text: the field that gives the key", "user.id"),
    query("timestamp_field", {"type": "string", "minLength": 1}, "NDJSON and text: the field with the time", "at"),
    header("Content-Encoding", {"enum": ["identity", "gzip", "zstd"]}, "how the body is compressed", "identity"),
]
_PRODUCE_REFUSALS = (400, 404, 408, 409, 413, 415, 422)
_PRODUCE_ANSWERS: dict[int, Json | None] = {
    200: body(_JSON, _PRODUCED, _PRODUCED_EXAMPLE),
    202: body(_JSON, _PRODUCED, _PRODUCED_EXAMPLE),
}

PRODUCE = operation(
    "POST",
    "produce",
    description="Append records. Those with a key go to the partition that Kafka's murmur2 gives.",
    answers=_PRODUCE_ANSWERS,
    refusals=_PRODUCE_REFUSALS,
    parameters=[_TOPIC, *_PRODUCE_PARAMETERS],
    request=_PRODUCE_BODY,
)
PRODUCE_PARTITION = operation(
    "POST",
    "produce",
    description="Append records to one partition, conditionally or at most once if asked for.",
    answers=_PRODUCE_ANSWERS,
    refusals=_PRODUCE_REFUSALS,
    parameters=[
        _TOPIC,
        _PARTITION,
        *_PRODUCE_PARAMETERS,
        query("expected_offset", whole(0, _INT64_MAX), "append only if this is the next offset", 41),
        header("Tidelog-Producer-Id", {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"}, "who retries", "web-1"),
        header("Tidelog-Producer-Epoch", whole(0, _INT32_MAX), "which life of the producer", 0),
        header("Tidelog-Sequence", whole(0, _INT64_MAX), "number of the first record", 0),
    ],
    request=_PRODUCE_BODY,
)

_RECORD = record_of(
    {
        "offset": COUNT,
        "timestamp": {"type": "integer"},
        "key": _PAYLOAD,
        "value": _PAYLOAD,
        "headers": list_of(record_of({"key": TEXT, "value": _PAYLOAD})),
    },
    {"partition": COUNT},
)
_RECORD_EXAMPLE = {"offset": 41, "timestamp": 1_763_712_000_000, "key": "user-1", "value": "plain text", "headers": []}
_FETCHED = record_of(
    {
        "topic": TEXT,
        "partition": COUNT,
        "records": list_of(_RECORD),
        "next_offset": COUNT,
        "high_watermark": COUNT,
        "log_start_offset": COUNT,
    }
)
_FETCHED_EXAMPLE = {
    "topic": "web",
    "partition": 0,
    "records": [_RECORD_EXAMPLE],
    "next_offset": 42,
    "high_watermark": 42,
    "log_start_offset": 0,
}
_EVENT_EXAMPLE = 'id: 41\ndata: {"offset":41,"timestamp":1763712000000,"key":null,"value":"text","headers":[]}\n\n'
_ENCODING = query("encoding", {"enum": ["base64"]}, "keys and values as base64 always", "base64")
_FRESH = query(
    "fresh", {"type": "string", "enum": ["true", "false"]}, "false: as the leader knows it, which may be older", "true"
)
_START = {"type": "string", "pattern": r"^(earliest|latest|-?[0-9]{1,18}|@.+)$"}
_READ_REFUSALS = (400, 404, 406, 416, 422, 500)

FETCH = operation(
    "GET",
    "fetch",
    description="Read records of one partition. Accept chooses JSON, JSON lines, Arrow or server-sent events.",
    answers={
        200: {
            **body(_JSON, _FETCHED, _FETCHED_EXAMPLE),
            **body(_NDJSON, TEXT, "a record a line"),
            **body(_ARROW, {"type": "string", "format": "binary"}, _NO_EXAMPLE),
            **body(_EVENTS, TEXT, _EVENT_EXAMPLE),
        }
    },
    refusals=_READ_REFUSALS,
    parameters=[
        _TOPIC,
        _PARTITION,
        query("offset", _START, "N, earliest (default), latest, -N or @time", "earliest"),
        query("max_records", whole(1, _INT64_MAX), "at most so many records", 100),
        query("max_bytes", whole(1, _INT64_MAX), "about so many bytes of keys and values", 1_048_576),
        query("wait_ms", whole(0, _INT64_MAX), "with no record there, wait so long for one", 0),
        _ENCODING,
        _FRESH,
        header("Last-Event-ID", TEXT, "event streams: go on after this offset", "41"),
    ],
)
FOLLOW = operation(
    "GET",
    "fetch",
    description="Follow all partitions as server-sent events or JSON lines.",
    answers={200: {**body(_EVENTS, TEXT, _EVENT_EXAMPLE), **body(_NDJSON, TEXT, "a record a line")}},
    refusals=_READ_REFUSALS,
    parameters=[
        _TOPIC,
        query("offset", _START, "where each partition begins; default latest", "latest"),
        query("wait_ms", whole(0, _INT32_MAX), "JSON lines: end after so long without a record", 0),
        _ENCODING,
        query("partitions", TEXT, "only these, as a list of partitions and ranges", "0-3,7"),
        query("positions", {"type": "boolean"}, "JSON lines: send lines that hold the position, too", True),
        header("Last-Event-ID", TEXT, "go on where these partitions stand", "0:41,1:7"),
    ],
)
_LOG = record_of(
    {
        "topic": TEXT,
        "topic_id": TEXT,
        "partition": COUNT,
        "shard": COUNT,
        "log_start_offset": COUNT,
        "cold_end": COUNT,
        "high_watermark": COUNT,
        "manifest_version": {"type": "integer", "minimum": -1},
        "store": TEXT,
        "segments": list_of(
            record_of(
                {
                    "key": TEXT,
                    "base_offset": COUNT,
                    "last_offset": COUNT,
                    "records": COUNT,
                    "size_bytes": COUNT,
                    "min_timestamp": {"type": "integer"},
                    "max_timestamp": {"type": "integer"},
                    "sha256": TEXT,
                }
            )
        ),
    }
)
_LOG_EXAMPLE = {
    "topic": "web",
    "topic_id": "0123456789abcdef0123456789abcdef",
    "partition": 0,
    "shard": 0,
    "log_start_offset": 0,
    "cold_end": 0,
    "high_watermark": 42,
    "manifest_version": -1,
    "store": "file:./tidelog-data",
    "segments": [],
}
LOG = operation(
    "GET",
    "fetch",
    description="Where a partition's records lie: what a direct reader of the bucket needs, in one consistent answer.",
    answers={200: body(_JSON, _LOG, _LOG_EXAMPLE)},
    refusals=(400, 404, 422),
    parameters=[
        _TOPIC,
        _PARTITION,
        _FRESH,
    ],
)
OFFSET = operation(
    "GET",
    "fetch",
    description="Resolve a position to an offset.",
    answers={200: body(_JSON, record_of({"offset": COUNT}), {"offset": 41})},
    refusals=_READ_REFUSALS,
    parameters=[
        _TOPIC,
        _PARTITION,
        query("at", _START, "as `offset` of a fetch", "@2026-01-31T12:00:00Z", required=True),
        _FRESH,
    ],
)
