"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and CreatePartitions."""

from __future__ import annotations

from typing import Any

from tests.kafka.oracle.messages import Each
from tests.kafka.oracle.pair import Pair
from tests.kafka.oracle.scenarios import scenario

DESCRIBE, ALTER, CREATE_PARTITIONS, INCREMENTAL = 32, 33, 37, 44
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
OWN = Each("1", "0")
NOBODY = "77"


def _resource(kind: int, name: Any, **fields: Any) -> list[dict[str, Any]]:
    return [{"resource_type": kind, "resource_name": name} | fields]


async def _describe(pair: Pair, version: int, kind: int, name: Any, names: list[str] | None) -> None:
    asked = _resource(kind, name, configuration_keys=names)
    await pair.ask(DESCRIBE, version, resources=asked, include_synonyms=True, include_documentation=False)


@scenario(DESCRIBE)
async def configs_of_a_topic(pair: Pair, version: int) -> None:
    await pair.topic("of-configs", retention_ms="60000", max_message_bytes="2000000")
    for names in (None, ["retention.ms", "no.such.config", "max.message.bytes"]):
        await _describe(pair, version, TOPIC, "of-configs", names)


@scenario(DESCRIBE)
async def configs_of_other_resources(pair: Pair, version: int) -> None:
    names = ["consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"]
    for kind, name in ((GROUP, "some-group"), (GROUP, ""), (METRICS, ""), (LOGGER, ""), (BROKER, NOBODY)):
        await _describe(pair, version, kind, name, names)
    for kind, name in ((BROKER, "x"), (77, "x"), (0, ""), (TOPIC, "nowhere"), (TOPIC, "bad name")):
        await _describe(pair, version, kind, name, names)
    await _describe(pair, version, BROKER, OWN, ["node.id", "num.partitions", "message.max.bytes"])


async def _incremental(pair: Pair, version: int, kind: int, name: Any, *changes: tuple[str, int, str | None]) -> None:
    configs = [{"name": config, "config_operation": operation, "value": value} for config, operation, value in changes]
    await pair.ask(INCREMENTAL, version, resources=_resource(kind, name, configs=configs), validate_only=False)


@scenario(INCREMENTAL)
async def single_changes_of_a_topic(pair: Pair, version: int) -> None:
    topic = f"of-changes-{version}"
    await pair.topic(topic)
    for change in (
        ("retention.ms", SET, "70000"),
        ("retention.ms", SET, "soon"),
        ("retention.ms", SET, None),
        ("retention.ms", DELETE, None),
        ("cleanup.policy", APPEND, "compact"),
        ("cleanup.policy", SUBTRACT, "delete"),
        ("cleanup.policy", APPEND, "shred"),
        ("retention.ms", APPEND, "1"),
        ("retention.ms", 9, "1"),
        ("no.such.config", SET, "1"),
        ("no.such.config", DELETE, None),
        ("min.insync.replicas", SET, "0"),
        ("compression.type", SET, "zstd"),
        ("compression.type", SET, "best"),
        ("remote.storage.enable", SET, "true"),
        ("preallocate", SET, "perhaps"),
        ("flush.ms", SET, "-1"),
        ("follower.replication.throttled.replicas", SET, "0:1,1:0"),
        ("follower.replication.throttled.replicas", SET, "here"),
    ):
        await _incremental(pair, version, TOPIC, topic, change)
    await _incremental(pair, version, TOPIC, topic, ("retention.ms", SET, "1"), ("retention.ms", DELETE, None))
    await _describe(pair, 4, TOPIC, topic, ["retention.ms", "cleanup.policy"])


@scenario(INCREMENTAL)
async def single_changes_that_are_refused(pair: Pair, version: int) -> None:
    change = ("retention.ms", SET, "70000")
    for kind, name in ((TOPIC, "nowhere"), (BROKER, NOBODY), (BROKER, "x"), (GROUP, ""), (77, "x")):
        await _incremental(pair, version, kind, name, change)
    await _incremental(pair, version, GROUP, "some-group", ("no.such.config", SET, "1"))


@scenario(ALTER)
async def all_configs_of_a_topic(pair: Pair, version: int) -> None:
    topic = f"of-alterations-{version}"
    await pair.topic(topic, retention_ms="60000")
    for config, value in (("segment.ms", "70000"), ("segment.ms", "soon"), ("segment.ms", None), ("no.such", "1")):
        configs = [{"name": config, "value": value}]
        await pair.ask(ALTER, version, resources=_resource(TOPIC, topic, configs=configs), validate_only=False)
    await _describe(pair, 4, TOPIC, topic, ["retention.ms", "segment.ms"])
    for kind, name in ((TOPIC, "nowhere"), (BROKER, NOBODY), (BROKER, "x"), (GROUP, ""), (LOGGER, OWN), (77, "x")):
        configs = [{"name": "retention.ms", "value": "70000"}]
        await pair.ask(ALTER, version, resources=_resource(kind, name, configs=configs), validate_only=False)


@scenario(CREATE_PARTITIONS)
async def more_partitions(pair: Pair, version: int) -> None:
    topic = f"of-partitions-{version}"
    await pair.topic(topic, 2)
    one = [{"broker_ids": [Each(1, 0)]}]
    for name, count, assignments in (
        (topic, 2, None),
        (topic, 1, None),
        (topic, 0, None),
        (topic, 3, one),
        (topic, 5, one),
        (topic, 4, None),
        ("nowhere", 3, None),
        ("bad name", 3, None),
    ):
        wanted = [{"name": name, "count": count, "assignments": assignments}]
        for validate_only in (True, False):
            await pair.ask(CREATE_PARTITIONS, version, topics=wanted, timeout=10_000, validate_only=validate_only)
    twice = [{"name": topic, "count": 9, "assignments": None}] * 2
    await pair.ask(CREATE_PARTITIONS, version, topics=twice, timeout=10_000, validate_only=True)
