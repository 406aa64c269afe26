"""Members over HTTP and over Kafka's protocol in one group. Each partition has one owner through joins, leaves and
deaths, and a group refuses members of the other kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from uuid import UUID

import httpx
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Part
from kio.schema.errors import ErrorCode
from tests.broker.brokers import until
from tests.kafka.conftest import SETTINGS, KafkaServed
from tests.kafka.mixed_members import (
    GROUP,
    LEAVES,
    SESSION_MS,
    TOPIC,
    HttpMember,
    KafkaMember,
    Member,
    beat_until,
)

from tidelog.services.broker.api.request_context import BROKER_ITSELF
from tidelog.services.http.app import create_app
from tidelog.services.settings.settings import Settings
from tidelog.storage.runtime import Runtime

PARTITIONS = 6
ALL = set(range(PARTITIONS))
WAIT_S = 20.0


@pytest.fixture
def settings() -> Settings:
    return replace(
        SETTINGS,
        group_consumer_session_timeout_ms=SESSION_MS,
        group_consumer_heartbeat_interval_ms=100,
        group_initial_rebalance_delay_ms=0,
    )


@pytest.fixture
async def http(served: KafkaServed) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app(served.broker, served.settings, Runtime()))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@pytest.fixture
async def members(served: KafkaServed, http: httpx.AsyncClient) -> AsyncIterator[Callable[[str], Member]]:
    """Makes members of either kind."""
    topic = await served.broker.create_topic(BROKER_ITSELF, TOPIC, PARTITIONS, {})
    clients = [await served.connect() for _ in range(3)]
    free = iter(clients)
    yield lambda kind: HttpMember(http) if kind == "http" else KafkaMember(next(free), UUID(topic.topic_id))
    for client in clients:
        await client.aclose()


@pytest.mark.parametrize(("first", "second"), [("http", "kafka"), ("kafka", "http")])
async def test_a_member_of_each_interface_joins_leaves_and_comes_back(
    members: Callable[[str], Member], first: str, second: str
) -> None:
    stays, comes = members(first), members(second)
    await beat_until([stays], lambda: stays.partitions == ALL)
    await beat_until([stays, comes], lambda: len(stays.partitions) == len(comes.partitions) == PARTITIONS // 2)
    await comes.beat(LEAVES)
    await beat_until([stays], lambda: stays.partitions == ALL)
    again = members(second)
    await beat_until([stays, again], lambda: len(stays.partitions) == len(again.partitions) == PARTITIONS // 2)


@pytest.mark.parametrize(("lives", "dies"), [("http", "kafka"), ("kafka", "http")])
async def test_a_member_that_dies_loses_its_partitions_to_the_other_interface(
    members: Callable[[str], Member], lives: str, dies: str
) -> None:
    living, dying = members(lives), members(dies)
    await beat_until([living, dying], lambda: len(living.partitions) == len(dying.partitions) == PARTITIONS // 2)
    await beat_until([living], lambda: living.partitions == ALL)


async def test_many_members_of_both_interfaces_share_all_partitions(members: Callable[[str], Member]) -> None:
    mixed = [members(kind) for kind in ("http", "kafka", "kafka", "http", "http", "kafka")]
    await beat_until(mixed, lambda: all(len(member.partitions) == 1 for member in mixed))


async def test_librdkafka_goes_on_behind_the_commits_of_a_member_over_http(
    served: KafkaServed, members: Callable[[str], Member], http: httpx.AsyncClient
) -> None:
    mine = HttpMember(http)
    await beat_until([mine], lambda: mine.partitions == ALL)
    for partition in ALL:
        await http.post(f"/v1/topics/{TOPIC}/partitions/{partition}/records", json={"records": [{"value": "a"}] * 3})
        await mine.commit(partition, 2)
    options = {"group.id": GROUP, "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{served.port}", **options})
    consumer.subscribe([TOPIC])
    reading = asyncio.create_task(asyncio.to_thread(read, consumer, PARTITIONS // 2))
    await beat_until([mine], reading.done)
    found = await reading
    assert {offset for _, offset in found} == {2}
    assert not mine.partitions & {partition for partition, _ in found}
    await mine.beat(LEAVES)
    rest = await asyncio.to_thread(read, consumer, PARTITIONS // 2)
    assert {partition for partition, _ in (*found, *rest)} == ALL
    await asyncio.to_thread(consumer.commit, offsets=[Part(TOPIC, number, 3) for number in ALL], asynchronous=False)
    told = (await http.post(f"/v1/groups/{GROUP}/offsets", json={})).json()
    assert {each["partition"]: each["offset"] for each in told["offsets"]} == dict.fromkeys(ALL, 3)
    await asyncio.to_thread(consumer.close)


async def test_a_classic_group_refuses_members_over_http_and_of_kip_848(
    served: KafkaServed, members: Callable[[str], Member], http: httpx.AsyncClient
) -> None:
    classic = AIOKafkaConsumer(TOPIC, bootstrap_servers=f"127.0.0.1:{served.port}", group_id=GROUP)
    members("http")
    await classic.start()
    await until(lambda: len(classic.assignment()) == PARTITIONS)
    body = {"member_id": "m", "member_epoch": 0, "topics": [TOPIC]}
    answer = await http.post(f"/v1/groups/{GROUP}/heartbeat", json=body)
    assert answer.status_code == 409
    assert "kind classic while it has members" in answer.json()["detail"]
    stranger = members("kafka")
    await stranger.beat()
    assert stranger.error is ErrorCode.inconsistent_group_protocol
    assert len(classic.assignment()) == PARTITIONS
    await classic.stop()


async def test_a_group_of_http_members_refuses_classic_ones(
    served: KafkaServed, members: Callable[[str], Member]
) -> None:
    mine = members("http")
    await beat_until([mine], lambda: mine.partitions == ALL)
    classic = AIOKafkaConsumer(TOPIC, bootstrap_servers=f"127.0.0.1:{served.port}", group_id=GROUP)
    with pytest.raises(KafkaError, match="InconsistentGroupProtocol"):
        await classic.start()
    await classic.stop()
    await mine.beat()
    assert mine.partitions == ALL


def read(consumer: Consumer, count: int) -> list[tuple[int, int]]:
    """Partition and offset of the next `count` records."""
    found = []
    while len(found) < count:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"{len(found)} of {count} records came"
        if message.error():
            raise KafkaException(message.error())
        found.append((message.partition(), message.offset()))
    return found
