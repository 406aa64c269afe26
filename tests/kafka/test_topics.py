"""Topics over Kafka's protocol: created, described, changed and deleted, in every version."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.kafka.conftest import KafkaServed
from tests.kafka.kio_client import KioClient, nested_of, request_of

from tidelog.services.broker.api.request_context import BROKER_ITSELF
from tidelog.services.kafka.protocol.api_table import API_TABLE, CREATE_TOPICS, DELETE_TOPICS, METADATA

CREATE_PARTITIONS = 37
TIMEOUT = timedelta(seconds=10)


def versions(key: int) -> list[int]:
    return list(range(API_TABLE[key].lowest, API_TABLE[key].highest + 1))


def creation(version: int, name: str, partitions: int = -1, *, only_check: bool = False, **fields: Any) -> Any:
    topic, config = nested_of(CREATE_TOPICS, version, "CreatableTopic", "CreatableTopicConfig")
    configs: Mapping[str, str] = fields.pop("configs", {})
    given = {"replication_factor": -1, "assignments": ()} | fields
    wanted = topic(
        name=name,
        num_partitions=partitions,
        configs=tuple(config(name=key, value=value) for key, value in configs.items()),
        **given,
    )
    return request_of(CREATE_TOPICS, version, topics=(wanted,), timeout=TIMEOUT, validate_only=only_check)


async def created(client: KioClient, name: str, partitions: int = -1, **fields: Any) -> Any:
    (result,) = (await client.ask(creation(7, name, partitions, **fields))).topics
    return result


def metadata_request(version: int, names: list[str] | None, *, creates: bool = False) -> Any:
    schema = load_request_schema(METADATA, version)
    fields: dict[str, Any] = {"topics": None}
    if names is not None:
        (topic,) = nested_of(METADATA, version, "MetadataRequestTopic")
        ids = {"topic_id": None} if version >= 10 else {}
        fields["topics"] = tuple(topic(name=name, **ids) for name in names)
    elif version == 0:
        fields["topics"] = ()
    if version >= 4:
        fields["allow_auto_topic_creation"] = creates
    if version in range(8, 11):
        fields["include_cluster_authorized_operations"] = True
    if version >= 8:
        fields["include_topic_authorized_operations"] = True
    return schema(**fields)


@pytest.mark.parametrize("version", versions(CREATE_TOPICS))
async def test_a_topic_is_created_in_every_version(client: KioClient, served: KafkaServed, version: int) -> None:
    request = creation(version, "events", 3, configs={"cleanup.policy": "compact", "min.insync.replicas": "2"})
    (result,) = (await client.ask(request)).topics
    assert (result.name, result.error_code) == ("events", ErrorCode.none)
    topic = served.broker.topic(BROKER_ITSELF, "events")
    assert (topic.partition_count, topic.config.cleanup_policy) == (3, "compact")
    if version >= 5:
        configs = {config.name: config.value for config in result.configs}
        assert (result.num_partitions, configs["cleanup.policy"], configs["retention.ms"]) == (
            3,
            "compact",
            "604800000",
        )
    if version >= 7:
        assert result.topic_id == UUID(topic.topic_id)
    (again,) = (await client.ask(request)).topics
    assert again.error_code == ErrorCode.topic_already_exists
    assert "events" in again.error_message


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"name": "a b"}, ErrorCode.invalid_topic_exception),
        ({"name": "t", "partitions": 0}, ErrorCode.invalid_partitions),
        ({"name": "t", "partitions": 10_001}, ErrorCode.invalid_partitions),
        ({"name": "t", "replication_factor": 0}, ErrorCode.invalid_replication_factor),
        ({"name": "t", "configs": {"retention.ms": "soon"}}, ErrorCode.invalid_config),
        ({"name": "t", "configs": {"no.such.config": "1"}}, ErrorCode.invalid_config),
    ],
)
@pytest.mark.parametrize("only_check", [False, True])
async def test_a_refusal_has_kafkas_code(
    client: KioClient, served: KafkaServed, fields: dict[str, Any], code: ErrorCode, only_check: bool
) -> None:
    result = await created(client, **fields, only_check=only_check)
    assert result.error_code == code
    assert result.error_message
    assert not served.broker.topics(BROKER_ITSELF)


async def test_a_check_creates_nothing(client: KioClient, served: KafkaServed) -> None:
    result = await created(client, "events", only_check=True)
    assert (result.error_code, result.num_partitions) == (ErrorCode.none, 2)
    assert not served.broker.topics(BROKER_ITSELF)


async def test_assignments_give_the_number_of_partitions(client: KioClient) -> None:
    (assignment,) = nested_of(CREATE_TOPICS, 7, "CreatableReplicaAssignment")
    two = tuple(assignment(partition_index=number, broker_ids=(1,)) for number in (1, 0))
    assert (await created(client, "assigned", assignments=two)).num_partitions == 2
    assert (await created(client, "gap", assignments=two[:1])).error_code == ErrorCode.invalid_replica_assignment
    assert (await created(client, "both", 2, assignments=two)).error_code == ErrorCode.invalid_request


@pytest.mark.parametrize("version", versions(METADATA))
async def test_metadata_names_brokers_topics_and_leaders_in_every_version(
    client: KioClient, served: KafkaServed, version: int
) -> None:
    await created(client, "events", 3)
    await created(client, "other", 1)
    for names in (["events"], None, ["events", "absent"]):
        answer = await client.ask(metadata_request(version, names))
        (broker,) = answer.brokers
        assert (broker.host, broker.port) == ("127.0.0.1", served.port)
        topics = {topic.name: topic for topic in answer.topics}
        assert set(topics) == set(names or ["events", "other"])
        assert [p.partition_index for p in topics["events"].partitions] == [0, 1, 2]
        for partition in topics["events"].partitions:
            assert (partition.error_code, partition.leader_id) == (ErrorCode.none, broker.node_id)
            assert partition.replica_nodes == partition.isr_nodes == (broker.node_id,)
        if names and "absent" in names and version >= 4:
            assert topics["absent"].error_code == ErrorCode.unknown_topic_or_partition
        if version >= 8:
            assert topics["events"].topic_authorized_operations == 3576
        if version in range(8, 11):
            assert answer.cluster_authorized_operations == 8096
        if version >= 10:
            assert topics["events"].topic_id == UUID(served.broker.topic(BROKER_ITSELF, "events").topic_id)


async def test_metadata_finds_topics_by_id(client: KioClient, served: KafkaServed) -> None:
    topic_id = (await created(client, "events")).topic_id
    (named,) = nested_of(METADATA, 12, "MetadataRequestTopic")
    asked = (named(name=None, topic_id=topic_id), named(name=None, topic_id=UUID(int=7)))
    request = request_of(METADATA, 12, topics=asked, include_topic_authorized_operations=False)
    found, unknown = (await client.ask(request)).topics
    assert (found.name, found.error_code) == ("events", ErrorCode.none)
    assert (unknown.name, unknown.topic_id, unknown.error_code) == (None, UUID(int=7), ErrorCode.unknown_topic_id)


async def test_metadata_creates_topics_if_the_request_allows_it(client: KioClient, served: KafkaServed) -> None:
    (refused,) = (await client.ask(metadata_request(12, ["made"]))).topics
    assert refused.error_code == ErrorCode.unknown_topic_or_partition
    (made,) = (await client.ask(metadata_request(12, ["made"], creates=True))).topics
    assert (made.error_code, len(made.partitions)) == (ErrorCode.none, 2)
    (invalid,) = (await client.ask(metadata_request(12, ["a b"], creates=True))).topics
    assert invalid.error_code == ErrorCode.invalid_topic_exception


async def test_kept_metadata_follows_the_topic(client: KioClient) -> None:
    """The entries of topics are kept encoded."""
    await created(client, "events", 1)
    assert len((await client.ask(metadata_request(12, ["events"]))).topics[0].partitions) == 1
    assert (await more_partitions(client, "events", 4)).error_code == ErrorCode.none
    assert len((await client.ask(metadata_request(12, ["events"]))).topics[0].partitions) == 4
    await client.ask(request_of(DELETE_TOPICS, 5, topic_names=("events",), timeout=TIMEOUT))
    assert not (await client.ask(metadata_request(12, None))).topics


@pytest.mark.parametrize("version", versions(DELETE_TOPICS))
async def test_topics_are_deleted_in_every_version(client: KioClient, served: KafkaServed, version: int) -> None:
    await created(client, "events")
    if version >= 6:
        (state,) = nested_of(DELETE_TOPICS, version, "DeleteTopicState")
        states = tuple(state(name=name, topic_id=None) for name in ("events", "absent"))
        request = request_of(DELETE_TOPICS, version, topics=states, timeout=TIMEOUT)
    else:
        request = request_of(DELETE_TOPICS, version, topic_names=("events", "absent"), timeout=TIMEOUT)
    deleted, absent = (await client.ask(request)).responses
    assert (deleted.name, deleted.error_code) == ("events", ErrorCode.none)
    assert (absent.name, absent.error_code) == ("absent", ErrorCode.unknown_topic_or_partition)
    assert not served.broker.topics(BROKER_ITSELF)


async def test_topics_are_deleted_by_id(client: KioClient) -> None:
    topic_id = (await created(client, "events")).topic_id
    (state,) = nested_of(DELETE_TOPICS, 6, "DeleteTopicState")
    states = tuple(state(name=None, topic_id=each) for each in (topic_id, UUID(int=7)))
    deleted, absent = (await client.ask(request_of(DELETE_TOPICS, 6, topics=states, timeout=TIMEOUT))).responses
    assert (deleted.name, deleted.topic_id, deleted.error_code) == ("events", topic_id, ErrorCode.none)
    assert absent.error_code == ErrorCode.unknown_topic_id


async def more_partitions(
    client: KioClient, name: str, count: int, version: int = 3, *, only_check: bool = False
) -> Any:
    (topic,) = nested_of(CREATE_PARTITIONS, version, "CreatePartitionsTopic")
    topics = (topic(name=name, count=count, assignments=None),)
    request = request_of(CREATE_PARTITIONS, version, topics=topics, timeout=TIMEOUT, validate_only=only_check)
    (result,) = (await client.ask(request)).results
    return result


@pytest.mark.parametrize("version", versions(CREATE_PARTITIONS))
async def test_partitions_are_added_in_every_version(client: KioClient, served: KafkaServed, version: int) -> None:
    await created(client, "events", 2)
    assert (await more_partitions(client, "events", 5, version, only_check=True)).error_code == ErrorCode.none
    assert served.broker.topic(BROKER_ITSELF, "events").partition_count == 2, "a check changes nothing"
    assert (await more_partitions(client, "events", 5, version)).error_code == ErrorCode.none
    assert served.broker.topic(BROKER_ITSELF, "events").partition_count == 5
    assert (await more_partitions(client, "events", 5, version)).error_code == ErrorCode.invalid_partitions
    absent = await more_partitions(client, "absent", 5, version)
    assert absent.error_code == ErrorCode.unknown_topic_or_partition
