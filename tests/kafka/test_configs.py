"""Configs of topics and brokers over Kafka's protocol, in every version."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.kafka.conftest import KafkaServed
from tests.kafka.kio_client import KioClient, nested_of, request_of

from tidelog.coordinator.topics.topic import TopicConfig
from tidelog.services.broker.api.request_context import BROKER_ITSELF
from tidelog.services.kafka.protocol.api_table import API_TABLE

DESCRIBE, ALTER, INCREMENTAL = 32, 33, 44
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
DYNAMIC_TOPIC, STATIC_BROKER, DEFAULT = 1, 4, 5


def versions(key: int) -> list[int]:
    return list(range(API_TABLE[key].lowest, API_TABLE[key].highest + 1))


@pytest.fixture
async def topic(served: KafkaServed) -> str:
    await served.broker.create_topic(BROKER_ITSELF, "events", 1, {"retention.ms": 1000})
    return "events"


async def described(
    client: KioClient, kind: int, name: str, keys: tuple[str, ...] | None = None, version: int = 4
) -> Any:
    (resource,) = nested_of(DESCRIBE, version, "DescribeConfigsResource")
    asked = (resource(resource_type=kind, resource_name=name, configuration_keys=keys),)
    documented = {"include_documentation": False} if version >= 3 else {}
    request = request_of(DESCRIBE, version, resources=asked, include_synonyms=True, **documented)
    (result,) = (await client.ask(request)).results
    return result


async def altered(client: KioClient, *changes: tuple[str, int, str | None], name: str = "events", **fields: Any) -> Any:
    version, kind = fields.pop("version", 1), fields.pop("kind", TOPIC)
    resource, config = nested_of(INCREMENTAL, version, "AlterConfigsResource", "AlterableConfig")
    configs = tuple(config(name=key, config_operation=operation, value=value) for key, operation, value in changes)
    asked = (resource(resource_type=kind, resource_name=name, configs=configs),)
    request = request_of(INCREMENTAL, version, resources=asked, validate_only=fields.get("only_check", False))
    (answer,) = (await client.ask(request)).responses
    return answer


async def replaced(client: KioClient, version: int, **configs: str) -> Any:
    resource, config = nested_of(ALTER, version, "AlterConfigsResource", "AlterableConfig")
    named = tuple(config(name=key.replace("_", "."), value=value) for key, value in configs.items())
    asked = (resource(resource_type=TOPIC, resource_name="events", configs=named),)
    (answer,) = (await client.ask(request_of(ALTER, version, resources=asked, validate_only=False))).responses
    return answer


def config_of(served: KafkaServed) -> TopicConfig:
    return served.broker.topic(BROKER_ITSELF, "events").config


@pytest.mark.parametrize("version", versions(DESCRIBE))
async def test_the_configs_of_a_topic_have_values_sources_and_synonyms(
    client: KioClient, topic: str, version: int
) -> None:
    result = await described(client, TOPIC, topic, version=version)
    assert (result.error_code, result.resource_type, result.resource_name) == (ErrorCode.none, TOPIC, topic)
    configs = {config.name: config for config in result.configs}
    assert set(TopicConfig().as_kafka()) < set(configs)
    retention, policy = configs["retention.ms"], configs["cleanup.policy"]
    assert (retention.value, retention.config_source) == ("1000", DYNAMIC_TOPIC)
    synonyms = {each.name: [(s.name, s.value, s.source) for s in each.synonyms] for each in (retention, policy)}
    assert synonyms == {
        "retention.ms": [("retention.ms", "1000", DYNAMIC_TOPIC)],
        "cleanup.policy": [("log.cleanup.policy", "delete", DEFAULT)],
    }
    assert (policy.value, policy.config_source, policy.read_only) == ("delete", DEFAULT, False)
    assert configs["min.insync.replicas"].value == "1", "a config of Kafka without an effect has Kafka's default"
    if version >= 3:
        assert (retention.config_type, policy.config_type) == (5, 7), "LONG, LIST"


async def test_only_the_named_configs_are_described(client: KioClient, topic: str) -> None:
    result = await described(client, TOPIC, topic, ("retention.ms", "no.such.config"))
    assert [config.name for config in result.configs] == ["retention.ms"]


async def test_what_cannot_be_described_has_a_code(client: KioClient) -> None:
    assert (await described(client, TOPIC, "absent")).error_code == ErrorCode.unknown_topic_or_partition
    assert (await described(client, TOPIC, "a b")).error_code == ErrorCode.invalid_topic_exception
    assert (await described(client, CLIENT_METRICS, "")).error_code == ErrorCode.invalid_request
    assert (await described(client, GROUP, "")).error_code == ErrorCode.invalid_request
    assert (await described(client, 77, "x")).error_code == ErrorCode.invalid_request
    assert (await described(client, BROKER, "77")).error_code == ErrorCode.invalid_request


async def test_a_group_has_the_configs_of_the_broker(client: KioClient) -> None:
    result = await described(client, GROUP, "any")
    values = {config.name: (config.value, config.config_source) for config in result.configs}
    assert values == {
        "consumer.heartbeat.interval.ms": ("5000", DEFAULT),
        "consumer.session.timeout.ms": ("45000", DEFAULT),
    }


async def test_the_configs_of_a_broker_are_its_settings(client: KioClient) -> None:
    (broker,) = (await client.ask(request_of(3, 1, topics=()))).brokers
    result = await described(client, BROKER, str(broker.node_id))
    configs = {config.name: config for config in result.configs}
    assert (configs["num.partitions"].value, configs["num.partitions"].config_source) == ("2", STATIC_BROKER)
    assert configs["auto.create.topics.enable"].value == "true"
    assert all(config.read_only for config in result.configs)


@pytest.mark.parametrize("version", versions(INCREMENTAL))
async def test_single_configs_are_changed(client: KioClient, served: KafkaServed, topic: str, version: int) -> None:
    answer = await altered(client, ("segment.ms", SET, "5"), ("retention.ms", DELETE, None), version=version)
    assert (answer.error_code, answer.resource_name) == (ErrorCode.none, "events")
    assert (config_of(served).segment_ms, config_of(served).retention_ms) == (5, 604_800_000)


async def test_lists_are_appended_to_and_subtracted_from(client: KioClient, served: KafkaServed, topic: str) -> None:
    assert (await altered(client, ("cleanup.policy", APPEND, "compact"))).error_code == ErrorCode.none
    assert config_of(served).cleanup_policy == "compact,delete"
    assert (await altered(client, ("cleanup.policy", SUBTRACT, "delete"))).error_code == ErrorCode.none
    assert config_of(served).cleanup_policy == "compact"
    assert (await altered(client, ("retention.ms", APPEND, "7"))).error_code == ErrorCode.invalid_config


async def test_a_config_without_effect_is_accepted(client: KioClient, served: KafkaServed, topic: str) -> None:
    before = config_of(served)
    assert (await altered(client, ("min.insync.replicas", SET, "2"))).error_code == ErrorCode.none
    assert config_of(served) == before


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("retention.ms", SET, "soon"), ErrorCode.invalid_config),
        (("no.such.config", SET, "1"), ErrorCode.invalid_config),
        (("retention.ms", SET, None), ErrorCode.invalid_request),
        (("retention.ms", 9, "1"), ErrorCode.invalid_request),
    ],
)
@pytest.mark.parametrize("only_check", [False, True])
async def test_a_wrong_change_is_refused_with_its_reason(
    client: KioClient, served: KafkaServed, topic: str, change: Any, code: ErrorCode, only_check: bool
) -> None:
    before = config_of(served)
    answer = await altered(client, ("segment.ms", SET, "5"), change, only_check=only_check)
    assert answer.error_code == code
    assert answer.error_message
    assert config_of(served) == before, "all changes of a resource or none"


async def test_a_check_changes_nothing(client: KioClient, served: KafkaServed, topic: str) -> None:
    assert (await altered(client, ("segment.ms", SET, "5"), only_check=True)).error_code == ErrorCode.none
    assert config_of(served).segment_ms == 604_800_000


async def test_other_resources_are_not_changed(client: KioClient) -> None:
    assert (await altered(client, ("a", SET, "5"), kind=BROKER, name="0")).error_code == ErrorCode.policy_violation
    absent = await altered(client, ("segment.ms", SET, "5"), name="absent")
    assert absent.error_code == ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("version", versions(ALTER))
async def test_all_configs_are_replaced(client: KioClient, served: KafkaServed, topic: str, version: int) -> None:
    assert (await replaced(client, version, segment_ms="5")).error_code == ErrorCode.none
    assert (config_of(served).segment_ms, config_of(served).retention_ms) == (5, 604_800_000)
