"""The OpenAPI descriptions of the calls on topics, the cluster and the broker itself."""

from __future__ import annotations

import msgspec

from tidelog.services.http.v1.openapi_parts import (
    EXAMPLE_ID,
    FLAG,
    TEXT,
    TOPIC,
    answer,
    body,
    operation,
    path,
    query,
    ref,
    whole,
)
from tidelog.services.http.v1.request_forms import AlterForm, CreateForm, FeatureLevelForm
from tidelog.wire.cluster import ClusterDescription, HealthAnswer, ReadyAnswer
from tidelog.wire.costs import CostDescription
from tidelog.wire.topics import ListedPartition, ListedTopic, PartitionDescription, TopicDescription, TopicPage

_JSON = "application/json"
_TIME_MS = 1_763_712_000_000
_CONFIGS = {"retention.ms": "86400000", "cleanup.policy": "delete"}
_DESCRIBED = answer(TopicDescription("web", EXAMPLE_ID, (PartitionDescription(0, 0, 0, 0, 42),), _CONFIGS, _TIME_MS))
_LISTED = answer(TopicPage((ListedTopic("web", EXAMPLE_ID, (ListedPartition(0, 0),), _CONFIGS, _TIME_MS),), "web"))
_CREATE = body(_JSON, ref(CreateForm), {"name": "web", "partitions": 4, "configs": {"retention.ms": 86_400_000}})
_RAISE = body(_JSON, ref(FeatureLevelForm), {"level": 2})
_ALTER = body(_JSON, ref(AlterForm), {"configs": {"retention.ms": None}, "partitions": 8})
_LIST_PARAMETERS = (
    query("limit", whole(1, 2**63 - 1), "The largest number of topics: 1,000 by default and at most.", 100),
    query("after", TEXT, "The `next` of the previous page.", "web"),
    query("detail", FLAG, "true: with the offsets of each partition.", "false"),
)
_BROKER = path("broker", {"type": "string", "minLength": 1, "maxLength": 128}, "Id of the broker.", "broker-1")
_CLUSTER = b"""
{"version": "0.1.0", "store": "s3://bucket/log", "ready": true, "reason": "", "buffered_bytes": 0,
 "groups": 3, "group_members": 12, "shards": [],
 "damage": [], "cluster": {
  "cluster_id": "0123456789abcdef0123456789abcdef", "name": "main", "coordinator": "etcd", "trouble": "",
  "brokers": [{"broker": "broker-1", "address": "http://10.0.0.7:8080", "zone": "a", "version": "0.1.0",
               "started_at_ms": 1763712000000, "shards": 1, "draining": false, "feature_level": 1}],
  "shards": [{"shard": 0, "leader": "broker-1", "epoch": 3, "preferred": "broker-1"}], "feature_level": 1}}
"""
_COST = b"""
{"broker": "broker-1", "store": "s3://bucket/log", "since_ms": 1793491200000, "now_ms": 1793577600000, "shards": [0, 1],
 "shards_total": 4, "rest": {"puts": 12.0, "gets": 40.0, "lists": 9.0, "heads": 0.0, "deletes": 0.0}, "topics": [{
  "topic": "web", "requests": {"puts": 4126.5, "gets": 2210.0, "lists": 96.0, "heads": 0.0, "deletes": 3980.25},
  "records_in": 40000000, "bytes_in": 12000000000, "archived_bytes": 1900000000, "merged_bytes": 1700000000,
  "compacted_bytes": 0, "partitions": 2, "partitions_known": 2, "hot_bytes": 31000000, "debt_bytes": 9000000,
  "debt_age_ms": 41000, "segments": 18, "cold_records": 39800000, "cold_bytes": 1890000000,
  "cold_raw_bytes": 11940000000, "garbage_objects": 3, "garbage_bytes": 180000000, "clean_offsets": 0,
  "clean_records": 0}]}
"""
_COSTED = answer(msgspec.json.decode(_COST, type=CostDescription))
_METRICS = body("text/plain", TEXT, "# HELP tidelog_produced_records_total …")
_BODY_REFUSALS = (400, 408, 409, 413, 415, 422)

CREATE = operation("POST", "topics", {201: _DESCRIBED}, _BODY_REFUSALS, request=_CREATE)
LIST = operation("GET", "topics", {200: _LISTED}, (400, 406), _LIST_PARAMETERS)
DESCRIBE = operation("GET", "topics", {200: _DESCRIBED}, (400, 404, 406, 422), (TOPIC,))
ALTER = operation("PATCH", "topics", {200: _DESCRIBED}, (*_BODY_REFUSALS, 404), (TOPIC,), _ALTER)
DELETE = operation("DELETE", "topics", {204: None}, (400, 404, 422), (TOPIC,))
CLUSTER = operation("GET", "cluster", {200: answer(msgspec.json.decode(_CLUSTER, type=ClusterDescription))}, (400,))
DRAIN = operation("POST", "cluster", {204: None}, (400, 404, 422), (_BROKER,))
FEATURE_LEVEL = operation("PUT", "cluster", {204: None}, _BODY_REFUSALS, request=_RAISE)
UNDO_DRAIN = operation("DELETE", "cluster", {204: None}, (400, 404, 422), (_BROKER,))
COST = operation("GET", "cluster", {200: _COSTED}, (400, 500))
HEALTH = operation("GET", "broker", {200: answer(HealthAnswer("alive"))})
READY = operation("GET", "broker", {200: answer(ReadyAnswer("ready"))})
METRICS = operation("GET", "broker", {200: _METRICS})
