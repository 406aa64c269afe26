"""What `/openapi.json` says of the calls on topics and on the broker itself."""

from __future__ import annotations

from tidelog.coordinator.topics.topic import PARTITIONS_MAX
from tidelog.services.http.v1.openapi_parts import (
    COUNT,
    TEXT,
    Json,
    body,
    list_of,
    operation,
    or_null,
    path,
    query,
    record_of,
    whole,
)

_JSON = "application/json"
_TOPIC = path("topic", {"type": "string", "pattern": "^[a-zA-Z0-9._-]{1,249}$"}, "the topic's name", "web")
_CONFIGS: Json = {"type": "object", "additionalProperties": {"type": ["string", "integer", "null"]}}
_PARTITIONS = or_null(whole(1, PARTITIONS_MAX))
_TOPIC_JSON = record_of(
    {
        "name": TEXT,
        "topic_id": TEXT,
        "partitions": list_of(
            record_of(
                {
                    "partition": COUNT,
                    "shard": COUNT,
                    "log_start_offset": COUNT,
                    "cold_end": COUNT,
                    "high_watermark": COUNT,
                }
            )
        ),
        "configs": {"type": "object", "additionalProperties": TEXT},
        "created_at_ms": {"type": "integer"},
    }
)
_TOPIC_EXAMPLE = {
    "name": "web",
    "topic_id": "0123456789abcdef0123456789abcdef",
    "partitions": [{"partition": 0, "shard": 0, "log_start_offset": 0, "cold_end": 0, "high_watermark": 42}],
    "configs": {"retention.ms": "86400000", "cleanup.policy": "delete"},
    "created_at_ms": 1_763_712_000_000,
}
_LISTED_PARTITION = record_of(
    {"partition": COUNT, "shard": COUNT}, {"log_start_offset": COUNT, "cold_end": COUNT, "high_watermark": COUNT}
)
_TOPIC_LIST = record_of(
    {
        "topics": list_of(
            record_of(
                {
                    "name": TEXT,
                    "topic_id": TEXT,
                    "partitions": list_of(_LISTED_PARTITION),
                    "configs": {"type": "object", "additionalProperties": TEXT},
                    "created_at_ms": {"type": "integer"},
                }
            )
        )
    },
    {"next": TEXT, "failed": list_of(record_of({"topic": TEXT, "code": TEXT, "detail": TEXT}))},
)
_LISTED_EXAMPLE = {**_TOPIC_EXAMPLE, "partitions": [{"partition": 0, "shard": 0}]}
_BODY_REFUSALS = (400, 408, 409, 413, 415, 422)

CREATE = operation(
    "POST",
    "topics",
    description="Create a topic. Names follow Kafka's rules, configs are Kafka's.",
    answers={201: body(_JSON, _TOPIC_JSON, _TOPIC_EXAMPLE)},
    refusals=_BODY_REFUSALS,
    request=body(
        _JSON,
        record_of(
            {"name": {"type": "string", "minLength": 1, "maxLength": 249}},
            {"partitions": _PARTITIONS, "configs": _CONFIGS},
            closed=True,
        ),
        {"name": "web", "partitions": 4, "configs": {"retention.ms": 86_400_000}},
    ),
)
LIST = operation(
    "GET",
    "topics",
    description="Topics by name, in pages, from memory; offsets of partitions only with `detail`.",
    answers={200: body(_JSON, _TOPIC_LIST, {"topics": [_LISTED_EXAMPLE], "next": "web"})},
    refusals=(400, 406),
    parameters=[
        query("limit", whole(1, 2**63 - 1), "at most so many topics, 1,000 by default and at the most", 100),
        query("after", TEXT, "the `next` of the page before", "web"),
        query("detail", {"enum": ["true", "false"]}, "true: with the offsets of each partition", "false"),
    ],
)
DESCRIBE = operation(
    "GET",
    "topics",
    description="One topic: its partitions and configs.",
    answers={200: body(_JSON, _TOPIC_JSON, _TOPIC_EXAMPLE)},
    refusals=(400, 404, 406, 422),
    parameters=[_TOPIC],
)
ALTER = operation(
    "PATCH",
    "topics",
    description="Change configs (null puts a default back) or add partitions.",
    answers={200: body(_JSON, _TOPIC_JSON, _TOPIC_EXAMPLE)},
    refusals=(*_BODY_REFUSALS, 404),
    parameters=[_TOPIC],
    request=body(
        _JSON,
        record_of({}, {"partitions": _PARTITIONS, "configs": _CONFIGS}, closed=True),
        {"configs": {"retention.ms": None}, "partitions": 8},
    ),
)
DELETE = operation(
    "DELETE",
    "topics",
    description="Delete a topic and its records.",
    answers={204: None},
    refusals=(400, 404, 422),
    parameters=[_TOPIC],
)

_INT64_MAX, _INT32_MAX = 2**63 - 1, 2**31 - 1
DELETE_RECORDS = operation(
    "POST",
    "topics",
    description="Delete the records of a partition below an offset; -1: all that is committed now. Their segments "
    "leave the bucket after `delete.grace.ms`.",
    answers={200: body(_JSON, record_of({"log_start_offset": COUNT}), {"log_start_offset": 0})},
    refusals=(*_BODY_REFUSALS, 404, 416),
    parameters=[_TOPIC, path("partition", whole(0, _INT32_MAX), "the partition's number", 0)],
    request=body(_JSON, record_of({"before_offset": whole(-1, _INT64_MAX)}, closed=True), {"before_offset": 0}),
)

_STATUS = record_of({"status": TEXT})
_READY = record_of({"status": TEXT}, {"reason": TEXT, "damaged_objects": {"type": "array", "items": TEXT}})
HEALTH = operation(
    "GET",
    "broker",
    description="200 while the process lives.",
    answers={200: body(_JSON, _STATUS, {"status": "alive"})},
    refusals=(),
)
READY = operation(
    "GET",
    "broker",
    description="200 if the broker takes requests, else 503 and why. `reason`: what a ready broker cannot do. Damaged "
    "objects of its shards that it knows of are named; it serves the rest.",
    answers={200: body(_JSON, _READY, {"status": "ready"})},
    refusals=(),
)
METRICS = operation(
    "GET",
    "broker",
    description="Prometheus text.",
    answers={200: body("text/plain", TEXT, "# HELP tidelog_produced_records_total …")},
    refusals=(),
)
