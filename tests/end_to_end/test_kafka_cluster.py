"""A cluster as clients of Kafka's protocol see it: the same on each broker, through a kill -9 and a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import pytest
from infra.loopback_ports import free_ports
from tests.components.etcd_server import EtcdServer
from tests.end_to_end.broker_cluster import BROKERS, SHARDS, WHOLE_S_MAX, BrokerCluster, broker_cluster
from tests.kafka.kio_client import KioClient, request_of
from tests.kafka.test_topics import creation, metadata_request

FIND_COORDINATOR = 10
Leaders = Mapping[int, tuple[int, int]]
"""The node and the epoch of the leader of each partition that has one."""


@pytest.fixture
def ports() -> list[int]:
    return free_ports(BROKERS)


@pytest.fixture
def brokers(etcd: EtcdServer, tmp_path_factory: pytest.TempPathFactory, ports: list[int]) -> Iterator[BrokerCluster]:
    with broker_cluster(etcd, tmp_path_factory.mktemp("kafka-cluster"), ports) as whole:
        yield whole


async def asked(port: int, request: Any) -> Any:
    client = await KioClient.connect("127.0.0.1", port)
    try:
        return await client.ask(request)
    finally:
        await client.aclose()


async def nodes(port: int) -> dict[int, int]:
    """The node id of each broker, by its port, as the broker at `port` tells."""
    return {each.port: each.node_id for each in (await asked(port, metadata_request(12, []))).brokers}


async def leaders(port: int) -> Leaders:
    (topic,) = (await asked(port, metadata_request(12, ["events"]))).topics
    led = (each for each in topic.partitions if each.leader_id >= 0)
    return {each.partition_index: (each.leader_id, each.leader_epoch) for each in led}


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WHOLE_S_MAX):
        while not await condition():  # noqa: ASYNC110  # the condition is on other processes
            await asyncio.sleep(0.1)


async def test_each_broker_tells_the_same_cluster_through_a_kill_and_a_restart(
    brokers: BrokerCluster, ports: list[int]
) -> None:
    await until(lambda: all_told(ports))
    numbers = await nodes(ports[0])
    assert len(set(numbers.values())) == BROKERS
    (created,) = (await asked(ports[0], creation(7, "events", SHARDS))).topics
    assert created.error_code == 0
    for port in ports[1:]:
        assert await nodes(port) == numbers
        assert set(await leaders(port)) == set(range(SHARDS)), "the other brokers know the topic at once"
        assert len({await coordinator(each) for each in ports}) == 1

    before, victim = await leaders(ports[0]), brokers.brokers[2]
    lost = numbers[ports[2]]
    victim.kill()
    await until(lambda: moved_from(lost, ports[0]))
    after = await leaders(ports[0])
    for partition, (node, epoch) in after.items():
        assert epoch > before[partition][1] if node != before[partition][0] else epoch >= before[partition][1]
    victim.start()
    await until(lambda: all_told(ports))
    assert await nodes(ports[0]) == numbers, "a broker keeps its number"


async def all_told(ports: list[int]) -> bool:
    return all([set(await nodes(port)) == set(ports) for port in ports])


async def moved_from(node: int, port: int) -> bool:
    now = await leaders(port)
    return len(now) == SHARDS and node not in {leader for leader, _ in now.values()}


async def coordinator(port: int) -> tuple[int, int]:
    (found,) = (await asked(port, request_of(FIND_COORDINATOR, 4, coordinator_keys=("billing",)))).coordinators
    assert found.error_code == 0, found.error_message
    return found.node_id, found.port
