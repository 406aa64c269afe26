"""Idempotent producers and groups of librdkafka and aiokafka, through kill -9 and restarts of one broker and of three.

Every record that was acknowledged is in the log once, in the order in which it was sent, and each group has seen it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from infra.loopback_ports import free_ports
from tests.components.etcd_server import EtcdServer
from tests.end_to_end.broker_cluster import BROKERS, BrokerCluster, broker_cluster
from tests.end_to_end.broker_process import BrokerProcess
from tests.end_to_end.kafka_clients import (
    FLUSH_S_MAX,
    TOPIC,
    AiokafkaReader,
    AiokafkaWriter,
    GroupReader,
    LibrdkafkaReader,
    LibrdkafkaWriter,
    Writer,
    committed,
    numbered,
    whole_log,
)

PARTITIONS = 4
MORE = 20
"""Records that each producer has to deliver between two faults."""
WAIT_S_MAX = 90.0

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[tuple[BrokerProcess, str]]:
    port = free_ports(1)[0]
    listeners = f"PLAINTEXT://127.0.0.1:{port}"
    broker = BrokerProcess(tmp_path, {"store": f"file:{tmp_path / 'data'}", "listeners": listeners})
    broker.start()
    yield broker, f"127.0.0.1:{port}"
    broker.stop()


@pytest.fixture
def three(etcd: EtcdServer, tmp_path: Path) -> Iterator[tuple[BrokerCluster, str]]:
    ports = free_ports(BROKERS)
    with broker_cluster(etcd, tmp_path, ports) as cluster:
        cluster.await_leaders(set(range(BROKERS)))
        yield cluster, ",".join(f"127.0.0.1:{port}" for port in ports)


async def test_clients_of_one_broker_survive_a_kill_and_a_restart(alone: tuple[BrokerProcess, str]) -> None:
    broker, bootstrap = alone
    await assert_survived(bootstrap, [lambda: killed(broker), lambda: restarted(broker)])


async def test_clients_of_three_brokers_survive_kills_and_a_rolling_restart(three: tuple[BrokerCluster, str]) -> None:
    cluster, bootstrap = three

    def rolled() -> None:
        for broker in cluster.brokers:
            restarted(broker)

    await assert_survived(bootstrap, [lambda: killed(cluster.brokers[1]), rolled, lambda: killed(cluster.brokers[2])])


def killed(broker: BrokerProcess) -> None:
    """kill -9, and start again at once."""
    broker.kill()
    broker.start()


def restarted(broker: BrokerProcess) -> None:
    assert broker.stop() == 0
    broker.start()


async def assert_survived(bootstrap: str, faults: Sequence[Callable[[], None]]) -> None:
    await asyncio.to_thread(create_topic, bootstrap)
    writers: list[Writer] = [
        *(LibrdkafkaWriter(bootstrap, partition) for partition in (0, 1)),
        *(AiokafkaWriter(bootstrap, partition) for partition in (2, 3)),
    ]
    readers: list[GroupReader] = [
        *(LibrdkafkaReader(bootstrap, "kip-848", group_protocol="consumer") for _ in range(2)),
        LibrdkafkaReader(bootstrap, "classic"),
        AiokafkaReader(bootstrap, "of aiokafka"),
    ]
    running = asyncio.gather(*(each.run() for each in (*writers, *readers)))  # type: ignore[attr-defined]
    for fault in (*faults, lambda: None):
        before = {each: len(each.delivered) for each in writers}
        await until(running, lambda: all(len(w.delivered) >= before[w] + MORE for w in writers))  # noqa: B023
        await asyncio.to_thread(fault)
    for writer in writers:
        writer.stop()
    await until(running, lambda: all(len(each.delivered) == each.sent for each in writers))
    groups = sorted({each.group for each in readers})
    await until(running, lambda: all(is_read(writers, readers, group) for group in groups))
    for reader in readers:
        reader.stop()
    await running
    await asyncio.to_thread(assert_kept, bootstrap, writers, readers, groups)


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(FLUSH_S_MAX)


def is_read(writers: Sequence[Writer], readers: Sequence[GroupReader], group: str) -> bool:
    """Whether members of the group have seen every record."""
    of_group = [each for each in readers if each.group == group]
    return all(len({at for each in of_group for at in each.seen[w.partition]}) == w.sent for w in writers)


def assert_kept(
    bootstrap: str, writers: Sequence[Writer], readers: Sequence[GroupReader], groups: Sequence[str]
) -> None:
    for writer in writers:
        assert writer.delivered == {number: number for number in range(writer.sent)}, "in order, without a gap"
        log = whole_log(bootstrap, writer.partition, writer.sent)
        assert log == [numbered(number) for number in range(writer.sent)]
        for reader in readers:
            assert all(log[offset] == value for offset, value in reader.seen[writer.partition].items())
    assert [failure for each in (*writers, *readers) for failure in each.failures] == []
    for group in groups:
        assert committed(bootstrap, group, PARTITIONS) == {each.partition: each.sent for each in writers}


async def until(running: asyncio.Future[list[None]], condition: Callable[[], bool]) -> None:
    """Wait for it while the clients run. A client that fails ends the test."""
    async with asyncio.timeout(WAIT_S_MAX):
        while not condition():
            if running.done():
                running.result()
            await asyncio.sleep(0.05)
