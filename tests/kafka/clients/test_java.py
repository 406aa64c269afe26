"""Kafka's own clients for Java, in one program (`java/`): its log has no warning but those that are named here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.components.required import require_component
from tests.kafka.clients.circle import (
    BASE_MS,
    CONFIGS,
    EACH,
    MORE_PARTITIONS,
    assert_complete,
    content,
    without_offset,
)
from tests.kafka.clients.programs import run_program, seen_by
from tests.kafka.conftest import KafkaServed

SOURCES = sorted((Path(__file__).parent / "java").glob("*.java"))
IDEMPOTENT = 200
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SENT = EACH * 3 * len(CODECS) + IDEMPOTENT
JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m")
"""For programs that run for seconds."""


@pytest.fixture
def classpath(tmp_path: Path) -> str:
    jars = require_component("kafka")
    if shutil.which("javac") is None:
        pytest.skip("javac is not on this machine: install a JDK of Java 17 or newer")
    return f"{tmp_path}:{jars}/*"


async def test_the_whole_circle(served: KafkaServed, classpath: str, tmp_path: Path) -> None:
    await run_program("javac", "-J-XX:TieredStopAtLevel=1", "-d", tmp_path, "-cp", classpath, *SOURCES)
    seen = await seen_by("java", *JVM, "-cp", classpath, "Circle", f"127.0.0.1:{served.port}", str(BASE_MS))
    assert seen["topics"] == {
        "created again": "TopicExistsException",
        "unknown": "UnknownTopicOrPartitionException",
        "partitions": MORE_PARTITIONS,
        "leaders": MORE_PARTITIONS,
        "listed": ["events"],
        "nodes": 1,
        "configs": CONFIGS,
    }
    told = {"0": 0, "1": EACH, "all": EACH}
    acknowledged = {f"{codec} {acks}": count for codec in CODECS for acks, count in told.items()}
    assert seen["acknowledged"] == {**acknowledged, "idempotent": IDEMPOTENT}
    assert_complete(seen["records"], SENT)
    assert without_offset(seen["by_time"]) == content(40)
    for protocol in ("classic", "consumer"):
        members = {"alone": 6, "both": [3, 3], "again": 6, "read": SENT, "committed": SENT}
        assert seen[protocol] == members, protocol
    refused = {call: outcome for call, outcome in seen["user interface"].items() if outcome != "ok"}
    assert refused == {"acls": "SecurityDisabledException"}, "as Kafka answers that has no authorizer"
    assert seen["groups"] == {
        "listed": {"by-classic": "Classic", "by-consumer": "Consumer"},
        "states": ["Empty", "Empty"],
        "offsets": SENT,
        "moved": [7, "back"],
        "left": MORE_PARTITIONS - 1,
        "after": 0,
    }
    assert seen["removal"] == {"low": 5, "earliest": 5, "listed": []}
    assert seen["transactions"] == "TransactionalIdAuthorizationException"
    assert seen["warnings"] == []
