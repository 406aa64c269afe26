"""The clients for Go: franz-go, sarama and kafka-go, each in one program (`go/`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.components.required import require_component
from tests.kafka.clients.circle import BASE_MS, CONFIGS, EACH, MORE_PARTITIONS, assert_complete, content, without_offset
from tests.kafka.clients.programs import seen_by
from tests.kafka.conftest import KafkaServed

from tidelog.services.broker.api.request_context import RequestContext

MEMBERS = {"alone": MORE_PARTITIONS, "both": [3, 3], "again": MORE_PARTITIONS}

HERE = RequestContext("test")


async def circle(client: str, served: KafkaServed, *, commits_all: bool = True) -> Mapping[str, Any]:
    """What the program saw; what all programs see is checked here. `commits_all`: the client's members leave only when
    all that they read is committed."""
    seen = await seen_by(require_component("kafka-clients"), client, f"127.0.0.1:{served.port}", str(BASE_MS))
    assert seen["topics"].pop("created again")
    assert seen["topics"] == {"partitions": MORE_PARTITIONS, "configs": CONFIGS}
    assert set(seen["acknowledged"].values()) == {EACH}
    assert_complete(seen["records"], sent(seen))
    assert without_offset(seen["by_time"]) == content(40)
    committed = seen["groups"].pop("offsets")
    assert committed == sent(seen) if commits_all else 0 < committed <= sent(seen)
    assert not served.broker.topics(HERE), "deleted"
    return seen


def sent(seen: Mapping[str, Any]) -> int:
    return EACH * len(seen["acknowledged"])


async def test_franz_go(served: KafkaServed) -> None:
    seen = await circle("franz", served)
    assert seen["classic"] == seen["consumer"] == {**MEMBERS, "read": sent(seen)}
    assert seen["groups"] == {
        "listed": ["by-classic", "by-consumer"],
        "moved": [7, "back"],
        "state": "Empty",
        "after": 0,
    }
    assert seen["removal"] == {"earliest": 5}
    assert seen["warnings"] == []


async def test_sarama(served: KafkaServed) -> None:
    seen = await circle("sarama", served)
    assert len(seen["acknowledged"]) == 16, "five codecs with three acks, and idempotent"
    assert seen["group"] == {**MEMBERS, "read": sent(seen)}
    assert seen["groups"] == {"listed": {"billing": "consumer"}, "moved": [7, "back"], "state": "Empty", "after": 0}
    assert seen["removal"] == {"earliest": 5}


async def test_kafka_go(served: KafkaServed) -> None:
    seen = await circle("segmentio", served, commits_all=False)
    assert len(seen["acknowledged"]) == 15
    assert seen["group"]["read"] >= sent(seen), "during a rebalance it reads records again, also with Kafka"
    assert seen["groups"] == {"listed": ["billing"], "after": 0}
    last = sent(seen) // 4
    assert seen["connection"] == {"first": 0, "last": last, "value": "by the connection", "controller": 0}
    assert seen["removal"] == {"earliest": 0}
