"""Positions of many partitions cost one call per leader, one opening of each manifest, and no records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker, until
from tests.broker.cluster_world import CLUSTER, World, running_world
from tests.broker.drafts import draft
from tests.broker.part_reads import ALL, fetch_parts, read_values

from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.api.fetch import Anchor, Position
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.consuming.partition_ends import look_up
from tidelog.storage.errors import LeaderUnknown
from tidelog.storage.manifests import topic_lists
from tidelog.storage.stores.counting import CountingObjectStore, Kind, Usage
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb

COUNT = 40
RECORDS = 10
BEGAN_MS = 1_700_000_000_000
HASTY = replace(CLUSTER, forward_timeout_ms=50)


def at(record: int) -> Position:
    """The time of a record of any partition."""
    return Position(Anchor.TIMESTAMP, BEGAN_MS + record)


async def fill(broker: Broker, count: int = COUNT, first: int = 0) -> None:
    for number in range(count):
        times = [BEGAN_MS + record for record in range(first, first + RECORDS)]
        records = draft([b"%d" % time for time in times], timestamps=times)
        await broker.produce(ANYBODY, "t", records, ProduceOptions(partition=number))


async def offsets(broker: Broker, position: Position, numbers: Sequence[int] = range(COUNT)) -> list[int]:
    found = await look_up(broker, ANYBODY, [(("t", number), position) for number in numbers])
    return [found["t", number].part.begin for number in numbers]


async def archived(monkeypatch: pytest.MonkeyPatch, *, listed: bool) -> MemoryObjectStore:
    """A bucket with one segment of `COUNT` partitions. `listed`: the manifest names a list of the topic."""
    if listed:
        monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 1)
    store = MemoryObjectStore()
    async with running_broker(store, shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", COUNT, {"retention.ms": -1})
        await fill(broker)
        await broker.archive_now()
        await fill(broker, first=RECORDS)
        await broker.archive_now()
    return store


def check_opened_once(spent: Usage, *, listed: bool) -> None:
    """A leader knows the newest version: it asks for a later one, and reads the list if there is one. A loop of the
    broker may have asked meanwhile, too."""
    assert spent.requests(Verb.GET, kind=Kind.MANIFEST) == listed
    assert spent.requests(Verb.LIST) == 0
    assert 1 <= spent.requests(Verb.HEAD, kind=Kind.MANIFEST) <= 3


async def test_times_of_many_partitions_cost_one_call_per_leader_wherever_the_records_are() -> None:
    store = MemoryObjectStore()
    mine = CountingObjectStore(store)
    async with running_world({"a": store, "b": store, "c": mine}) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", COUNT, {"retention.ms": -1})
        await fill(world.brokers["a"])
        for broker in world.brokers.values():
            await broker.archive_now()
        await fill(world.brokers["a"], first=RECORDS)
        asked = world.brokers["c"]
        theirs = [number for number in range(COUNT) if not asked.route(ANYBODY, "t", number).local]
        before, requests_before = asked.measurements().cluster.forwarded, mine.usage()
        assert await offsets(asked, at(3), theirs) == [3] * len(theirs)
        assert await offsets(asked, at(13), theirs) == [13] * len(theirs)
        assert await offsets(asked, at(99), theirs) == [20] * len(theirs)
        assert asked.measurements().cluster.forwarded == before + 3 * 2
        assert (mine.usage() - requests_before).requests() == 0, "no records are read for it"
        assert await offsets(asked, at(3)) == [3] * COUNT


async def test_a_look_up_waits_for_the_leader_of_a_shard_that_moves() -> None:
    async with running_world(dict.fromkeys(("a", "b"), MemoryObjectStore()), shards=2) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", 4, {})
        await fill(world.brokers["a"], 4)
        kept, moved = (next(n for n in range(4) if _leader(world, n) == name) for name in ("b", "a"))
        await world.kill("a")
        looking = asyncio.ensure_future(offsets(world.brokers["b"], at(3), [kept, moved]))
        await asyncio.sleep(0.05)
        assert not looking.done()
        await world.usurp(world.brokers["b"].topic(ANYBODY, "t").shards[moved], "b")
        assert await looking == [3, 3]


async def test_a_look_up_without_a_leader_fails_when_the_time_is_over() -> None:
    async with running_world(dict.fromkeys(("a", "b"), MemoryObjectStore()), shards=2, settings=HASTY) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", 4, {})
        await fill(world.brokers["a"], 4)
        await world.kill("a")
        await until(lambda: any(_leader(world, number) is None for number in range(4)))
        with pytest.raises(LeaderUnknown):
            await offsets(world.brokers["b"], at(3), range(4))


@pytest.mark.parametrize("listed", [False, True])
async def test_a_new_leader_opens_its_manifest_once_for_the_times_of_all_partitions(
    monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    counting = CountingObjectStore(await archived(monkeypatch, listed=listed))
    async with new_leader(counting) as broker:
        before = counting.usage()
        assert await offsets(broker, at(3)) == [3] * COUNT
        spent = counting.usage() - before
        check_opened_once(spent, listed=listed)
        assert spent.requests(kind=Kind.SEGMENT) <= 2, "a small segment comes whole, with its footer"
        assert await offsets(broker, at(13)) == [13] * COUNT


@pytest.mark.parametrize("listed", [False, True])
async def test_a_new_leader_opens_its_manifest_once_for_a_cold_fetch_of_all_partitions(
    monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    counting = CountingObjectStore(await archived(monkeypatch, listed=listed))
    async with new_leader(counting) as broker:
        spent = await spent_on_all(broker, counting)
        check_opened_once(spent, listed=listed)
        assert spent.requests(kind=Kind.SEGMENT) <= 4, "two segments, which come whole"


@pytest.mark.parametrize("listed", [False, True])
async def test_another_broker_opens_the_manifest_of_a_shard_once_for_a_cold_fetch_of_all_its_partitions(
    monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    if listed:
        monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 1)
    store = MemoryObjectStore()
    mine = CountingObjectStore(store)
    async with running_world({"a": store, "b": mine}, shards=1) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", COUNT, {"retention.ms": -1})
        for first in (0, RECORDS):
            await fill(world.brokers["a"], first=first)
            await world.brokers["a"].archive_now()
        spent = await spent_on_all(world.brokers["b"], mine)
        assert spent.requests(Verb.LIST) == 1
        assert spent.requests(Verb.GET, kind=Kind.MANIFEST) == 1 + listed, "the version, and the list if there is one"
        assert spent.requests(kind=Kind.SEGMENT) <= 4, "two segments, which come whole"


@asynccontextmanager
async def new_leader(store: CountingObjectStore) -> AsyncIterator[LocalBroker]:
    """A broker that leads the only shard and knows its newest manifest."""
    async with running_broker(store, shards=1, archiver_upkeep=False) as broker:
        log = broker.shards.leading(0).partitions.log
        await until(lambda: log.known is not None)
        yield broker


async def spent_on_all(broker: Broker, counting: CountingObjectStore) -> Usage:
    """The requests for a fetch of all records of all partitions, which are archived."""
    before = counting.usage()
    read = read_values(await fetch_parts(broker, dict.fromkeys(range(COUNT), 0), ALL))
    assert [len(values) for values in read.values()] == [2 * RECORDS] * COUNT
    return counting.usage() - before


def _leader(world: World, number: int) -> str | None:
    for name, broker in world.brokers.items():
        if broker.route(ANYBODY, "t", number).local:
            return name
    return None
