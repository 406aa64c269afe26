"""Node ids, listeners and producer ids of the brokers of a cluster, and of a broker alone."""

import asyncio
from dataclasses import replace

from tests.anybody import ANYBODY
from tests.broker.brokers import SETTINGS, running_broker, until
from tests.broker.cluster_members import QUICK, SharedKeyValueStore, running_members

from tidelog.coordinator.cluster.cluster_keys import BrokerRecord, ClusterKeys, decode_value
from tidelog.coordinator.journal import Journal
from tidelog.coordinator.recovery.recover import apply_recovery, plan_recovery
from tidelog.services.broker.cluster.cluster_broker import ClusterBroker
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.memory import MemoryObjectStore


def node_ids(broker: ClusterBroker) -> dict[str, int]:
    """As `broker` sees them."""
    return {place.broker_id: place.node_id for place in broker.cluster(ANYBODY).brokers}


async def some_ids(broker: LocalBroker) -> set[int]:
    return set(await asyncio.gather(*(broker.new_producer_id(ANYBODY) for _ in range(50))))


async def test_every_broker_has_a_node_id_that_all_others_see_and_keeps_it_when_it_restarts() -> None:
    store = MemoryObjectStore()
    async with running_members(("a", store), ("b", store), ("c", store)) as members:
        assert all(node_ids(broker) == {"a": 0, "b": 1, "c": 2} for broker in members.brokers.values())
        assert [broker.status().node_id for broker in members.brokers.values()] == [0, 1, 2]
        for name in ("a", "c"):
            await members.stop(name)
        await members.start("d", store)
        await members.start("c", store)
        await members.balanced()
        assert node_ids(members.brokers["b"]) == {"b": 1, "c": 2, "d": 3}


async def test_a_route_has_the_node_id_and_the_listeners_of_the_leader() -> None:
    store = MemoryObjectStore()
    told = "PLAINTEXT://{0}:9092,OUTSIDE://{0}.example:19092"
    async with running_members(("a", store)) as members:
        for name in ("b", "c"):
            text = told.format(name)
            await members.start(name, store, replace(QUICK, listeners=text, advertised_listeners=text))
        await members.balanced()
        await members.brokers["a"].create_topic(ANYBODY, "t", 4, {})
        routes = [members.brokers["a"].route(ANYBODY, "t", number) for number in range(4)]
        leaders = {route.leader.broker_id: route.leader for route in routes if route.leader}
        assert {name: leader.node_id for name, leader in leaders.items()} == {"b": 1, "c": 2}
        for name, leader in leaders.items():
            assert leader.listeners == {"PLAINTEXT": f"{name}:9092", "OUTSIDE": f"{name}.example:19092"}
        places = {place.broker_id: place for place in members.brokers["c"].cluster(ANYBODY).brokers}
        assert places["a"].listeners == {}
        assert places["b"].listeners == leaders["b"].listeners


async def test_node_ids_and_producer_ids_outlive_the_loss_of_etcd() -> None:
    store, keys, runtime = MemoryObjectStore(), ClusterKeys(QUICK.cluster_name), Runtime()
    async with running_members(("a", store), ("b", store)) as members:
        taken = await some_ids(members.brokers["a"]) | await some_ids(members.brokers["b"])
    wiped = SharedKeyValueStore(runtime)
    journal = Journal(store, runtime)
    await journal.open()
    plan = await plan_recovery(store, journal, wiped, keys, shards=QUICK.shards, runtime=runtime)
    await apply_recovery(plan, store, journal, wiped, keys, runtime)
    async with running_members(("c", store), ("b", store), ("a", store), kv=wiped) as members:
        assert node_ids(members.brokers["c"]) == {"a": 0, "b": 1, "c": 2}
        again = await some_ids(members.brokers["a"]) | await some_ids(members.brokers["b"])
    assert len(taken) == len(again) == 100
    assert not taken & again


async def test_a_broker_alone_has_node_id_zero_its_listeners_and_producer_ids_of_its_own() -> None:
    store = MemoryObjectStore()
    settings = replace(SETTINGS, listeners="PLAINTEXT://h:1", advertised_listeners="PLAINTEXT://h:9092")
    changes = {"listeners": settings.listeners, "advertised_listeners": settings.advertised_listeners}
    taken: list[int] = []
    for _ in range(3):
        async with running_broker(store, **changes) as broker:
            assert broker.status().node_id == 0
            (place,) = broker.cluster(ANYBODY).brokers
            assert (place.node_id, place.listeners) == (0, {"PLAINTEXT": "h:9092"})
            taken += await some_ids(broker)
    assert len(set(taken)) == len(taken) == 150


async def test_a_record_of_an_earlier_version_has_no_node_id_and_no_listeners() -> None:
    text = b"""{"broker_id": "a", "incarnation": "i", "address": "http://a", "zone": "", "version": "1",
        "started_at_ms": 0, "eligible": true, "stopping": false}"""
    record = decode_value("brokers/a", text, BrokerRecord)
    assert (record.node_id, record.listeners, record.feature_level) == (-1, {}, 1)


async def test_a_broker_killed_while_it_takes_a_block_leaves_no_id_to_be_given_twice() -> None:
    store = MemoryObjectStore()
    async with running_broker(store) as first:
        taking = asyncio.create_task(some_ids(first))
        await until(lambda: first._parts.journal.next_number > 0)  # no call tells it
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        async with running_broker(store) as second:
            assert not await some_ids(first) & await some_ids(second)
