"""What `/openapi.json` says of the call on what a broker costs."""

from __future__ import annotations

from tidelog.services.http.v1.openapi_parts import COUNT, TEXT, Json, body, list_of, operation, record_of

_PART: Json = {"type": "number", "minimum": 0}
_REQUESTS = record_of({"puts": _PART, "gets": _PART, "lists": _PART, "heads": _PART, "deletes": _PART})
_COUNTS = (
    "records_in",
    "bytes_in",
    "archived_bytes",
    "merged_bytes",
    "compacted_bytes",
    "partitions",
    "partitions_known",
    "hot_bytes",
    "debt_bytes",
    "debt_age_ms",
    "segments",
    "cold_records",
    "cold_bytes",
    "cold_raw_bytes",
    "garbage_objects",
    "garbage_bytes",
    "clean_offsets",
    "clean_records",
)
_TOPIC = record_of({"topic": TEXT, "requests": _REQUESTS, **dict.fromkeys(_COUNTS, COUNT)})
_COST = record_of(
    {
        "broker": TEXT,
        "store": TEXT,
        "since_ms": COUNT,
        "now_ms": COUNT,
        "shards": list_of(COUNT),
        "shards_total": COUNT,
        "topics": list_of(_TOPIC),
        "rest": _REQUESTS,
    }
)
_EXAMPLE = {
    "broker": "broker-1",
    "store": "s3://bucket/log",
    "since_ms": 1_793_491_200_000,
    "now_ms": 1_793_577_600_000,
    "shards": [0, 1],
    "shards_total": 4,
    "topics": [
        {
            "topic": "web",
            "requests": {"puts": 4126.5, "gets": 2210.0, "lists": 96.0, "heads": 0.0, "deletes": 3980.25},
            "records_in": 40_000_000,
            "bytes_in": 12_000_000_000,
            "archived_bytes": 1_900_000_000,
            "merged_bytes": 1_700_000_000,
            "compacted_bytes": 0,
            "partitions": 2,
            "partitions_known": 2,
            "hot_bytes": 31_000_000,
            "debt_bytes": 9_000_000,
            "debt_age_ms": 41_000,
            "segments": 18,
            "cold_records": 39_800_000,
            "cold_bytes": 1_890_000_000,
            "cold_raw_bytes": 11_940_000_000,
            "garbage_objects": 3,
            "garbage_bytes": 180_000_000,
            "clean_offsets": 0,
            "clean_records": 0,
        }
    ],
    "rest": {"puts": 12.0, "gets": 40.0, "lists": 9.0, "heads": 0.0, "deletes": 0.0},
}
COST = operation(
    "GET",
    "cluster",
    description="What the asked broker has asked of the store since it started, topic by topic, and what lies there of "
    "the shards that it leads. Each broker has its own numbers; together they are the cluster's.",
    answers={200: body("application/json", _COST, _EXAMPLE)},
    refusals=(400, 500),
)
