"""aiokafka, as it comes from its registry, creates, describes, changes and deletes topics."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAlreadyExistsError
from tests.kafka.conftest import KafkaServed

from tidelog.services.broker.api.request_context import BROKER_ITSELF


@pytest.fixture
async def admin(served: KafkaServed) -> AsyncIterator[AIOKafkaAdminClient]:
    connected = AIOKafkaAdminClient(bootstrap_servers=f"127.0.0.1:{served.port}")
    await connected.start()
    yield connected
    await connected.close()


async def test_a_topic_from_its_creation_to_its_end(admin: AIOKafkaAdminClient, served: KafkaServed) -> None:
    await admin.create_topics([NewTopic("events", 3, 1, topic_configs={"retention.ms": "1000"})])
    (described,) = await admin.describe_topics(["events"])
    assert described["error_code"] == 0
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2]
    await admin.create_partitions({"events": NewPartitions(5)})
    assert served.broker.topic(BROKER_ITSELF, "events").partition_count == 5
    (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "events")])
    (resource,) = answer.resources
    values = {config[0]: config[1] for config in resource[4]}
    assert (values["retention.ms"], values["cleanup.policy"]) == ("1000", "delete")
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "events", {"retention.ms": "2000"})])
    assert served.broker.topic(BROKER_ITSELF, "events").config.retention_ms == 2_000
    assert await admin.list_topics() == ["events"]
    await admin.delete_topics(["events"])
    assert await admin.list_topics() == []


async def test_a_refusal_is_the_client_s_own_error(admin: AIOKafkaAdminClient) -> None:
    await admin.create_topics([NewTopic("events", 1, 1)])
    answer = await admin.create_topics([NewTopic("events", 1, 1)])
    assert answer.topic_errors[0][1] == TopicAlreadyExistsError.errno


async def test_the_cluster_is_described(admin: AIOKafkaAdminClient, served: KafkaServed) -> None:
    described = await admin.describe_cluster()
    (broker,) = described["brokers"]
    assert (broker["node_id"], broker["host"], broker["port"]) == (0, "127.0.0.1", served.port)
    assert (described["cluster_id"], described["controller_id"]) == ("tidelog", 0)
