"""What `/openapi.json` says of the calls on the cluster."""

from __future__ import annotations

from tidelog.services.http.v1.openapi_parts import (
    COUNT,
    TEXT,
    Json,
    body,
    list_of,
    operation,
    or_null,
    path,
    record_of,
)

_FLAG: Json = {"type": "boolean"}
_BROKER = path("broker", {"type": "string", "minLength": 1, "maxLength": 128}, "the broker's id", "broker-1")
_SHARD = record_of(
    {
        "shard": COUNT,
        "leading": _FLAG,
        "epoch": {"type": "integer"},
        "wal_floor": COUNT,
        "wal_next": COUNT,
        "wal_bytes": COUNT,
        "buffered_bytes": COUNT,
        "partitions": COUNT,
    }
)
_DAMAGE = record_of(
    {
        "object": TEXT,
        "reason": TEXT,
        "effect": TEXT,
        "shard": {"type": "integer"},
        "topic": TEXT,
        "partition": {"type": "integer"},
    }
)
_BROKER_PLACE = record_of(
    {
        "broker": TEXT,
        "address": TEXT,
        "zone": TEXT,
        "version": TEXT,
        "started_at_ms": COUNT,
        "shards": COUNT,
        "draining": _FLAG,
    }
)
_SHARD_PLACE = record_of(
    {"shard": COUNT, "leader": or_null(TEXT), "epoch": {"type": "integer"}, "preferred": or_null(TEXT)}
)
_MEMBERS = record_of(
    {
        "cluster_id": TEXT,
        "name": TEXT,
        "coordinator": TEXT,
        "trouble": TEXT,
        "brokers": list_of(_BROKER_PLACE),
        "shards": list_of(_SHARD_PLACE),
    }
)
_CLUSTER = record_of(
    {
        "version": TEXT,
        "store": TEXT,
        "ready": _FLAG,
        "reason": TEXT,
        "buffered_bytes": COUNT,
        "shards": list_of(_SHARD),
        "damage": list_of(_DAMAGE),
        "cluster": _MEMBERS,
    }
)
_EXAMPLE = {
    "version": "0.1.0",
    "store": "s3://bucket/log",
    "ready": True,
    "reason": "",
    "buffered_bytes": 0,
    "shards": [],
    "damage": [],
    "cluster": {
        "cluster_id": "0123456789abcdef0123456789abcdef",
        "name": "main",
        "coordinator": "etcd",
        "trouble": "",
        "brokers": [
            {
                "broker": "broker-1",
                "address": "http://10.0.0.7:8080",
                "zone": "a",
                "version": "0.1.0",
                "started_at_ms": 1_763_712_000_000,
                "shards": 1,
                "draining": False,
            }
        ],
        "shards": [{"shard": 0, "leader": "broker-1", "epoch": 3, "preferred": "broker-1"}],
    },
}
CLUSTER = operation(
    "GET",
    "cluster",
    description="The asked broker with each shard it leads, and the cluster as it sees it: brokers, leaders, epochs.",
    answers={200: body("application/json", _CLUSTER, _EXAMPLE)},
    refusals=(400,),
)
_DRAIN_REFUSALS = (400, 404, 422)
DRAIN = operation(
    "POST",
    "cluster",
    description="Let a broker lead nothing until it starts again: its shards go to the others, one by one.",
    answers={204: None},
    refusals=_DRAIN_REFUSALS,
    parameters=[_BROKER],
)
UNDO_DRAIN = operation(
    "DELETE",
    "cluster",
    description="Undo a drain: the broker is given its fair share of shards again.",
    answers={204: None},
    refusals=_DRAIN_REFUSALS,
    parameters=[_BROKER],
)
