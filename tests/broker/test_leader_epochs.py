"""Leader epochs for Kafka's clients: of a route, and where the records of an epoch end (KIP-320)."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker, until
from tests.broker.cluster_world import running_world
from tests.broker.drafts import numbered
from tests.broker.part_drafts import appended, part

from tidelog.services.broker.api.cluster import EpochEnd
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.broker.read.epoch_ends import epoch_end
from tidelog.storage.errors import LeaderUnknown, NotFound, NotLeader
from tidelog.storage.manifests.shard_values import LeaderEpoch
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore

Bucket = Callable[[], ObjectStore]
EPOCHS = (LeaderEpoch(2, 3), LeaderEpoch(5, 10), LeaderEpoch(6, 20))


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        *[(-1, (-1, -1)), (0, (0, 4)), (1, (1, 4)), (2, (2, 10)), (3, (2, 10)), (4, (2, 10)), (5, (5, 20))],
        *[(6, (6, 30)), (7, (6, 30)), (8, (8, 30)), (9, (-1, -1))],
    ],
)
def test_an_epoch_ends_where_the_next_one_with_records_begins(asked: int, found: tuple[int, int]) -> None:
    """Epoch 8 leads and has committed nothing yet; epochs 3, 4 and 7 have not either; the log starts at offset 4."""
    assert epoch_end(EPOCHS, 8, asked, log_start_offset=4, high_watermark=30) == EpochEnd(*found)


def test_an_empty_partition_has_no_records_in_any_epoch() -> None:
    assert epoch_end((), 3, 1, log_start_offset=0, high_watermark=0) == EpochEnd(1, 0)


async def ends(broker: LocalBroker, epochs: Sequence[int], partition: int = 0) -> list[tuple[int, int]]:
    found = [await broker.epoch_end(ANYBODY, "t", partition, epoch) for epoch in epochs]
    return [(one.epoch, one.end_offset) for one in found]


async def test_epochs_are_known_in_the_hot_log_in_the_manifest_and_in_both(bucket: Bucket) -> None:
    """Partition 1 has records of the first and of the last leader alone."""
    epochs = []
    for start, archives in enumerate((False, True, False, False)):
        async with running_broker(bucket(), shards=1) as broker:
            if not start:
                await broker.create_topic(ANYBODY, "t", 2, {})
                await appended(broker, part(numbered(0, 5), 1))
            epochs.append(broker.route(ANYBODY, "t", 0).epoch)
            assert await ends(broker, epochs[:-1]) == [(epoch, 2 * n + 2) for n, epoch in enumerate(epochs[:-1])]
            await appended(broker, part(numbered(0, 1)), part(numbered(0, 1)))
            expected = [(epoch, 2 * n + 2) for n, epoch in enumerate(epochs)]
            assert await ends(broker, epochs) == expected
            assert await ends(broker, epochs, 1) == [(epochs[0], 5)] * start + [(epochs[-1], 5)]
            assert await ends(broker, [epochs[-1] + 1]) == [(-1, -1)]
            if archives:
                await broker.archive_now()
                assert await ends(broker, epochs) == expected
            if start == 3:
                await appended(broker, part(numbered(0, 1), 1))
                assert await ends(broker, epochs, 1) == [(epochs[0], 5)] * 3 + [(epochs[3], 6)]
    assert epochs == sorted(set(epochs)), "an epoch never goes back"


async def test_across_takeovers_no_epoch_ends_below_what_was_read_in_it() -> None:
    store = MemoryObjectStore()
    async with running_world(dict.fromkeys("ab", store), shards=1) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", 1, {})
        read: list[tuple[int, int]] = []
        for turn in range(6):
            name = "ab"[turn % 2]
            if turn:
                await world.give(0, name)
            broker = world.brokers[name]
            epoch = broker.route(ANYBODY, "t", 0).epoch
            for _ in range(turn % 3):
                await appended(broker, part(numbered(0, 3)))
                end = (await broker.epoch_end(ANYBODY, "t", 0, epoch)).end_offset
                read.append((epoch, end))
            if turn == 3:
                await broker.archive_now()
            for earlier, offset in read:
                assert (await broker.epoch_end(ANYBODY, "t", 0, earlier)).end_offset >= offset
        assert [epoch for epoch, _ in read] == sorted(epoch for epoch, _ in read)


async def test_a_route_names_the_epoch_of_the_leader_wherever_it_is() -> None:
    async with running_world(dict.fromkeys("ab", MemoryObjectStore()), shards=1) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", 1, {})
        await world.brokers["b"].known_topic(ANYBODY, "t")
        assert [world.brokers[name].route(ANYBODY, "t", 0).epoch for name in "ab"] == [1, 1]
        await world.give(0, "b")
        routes = [world.brokers[name].route(ANYBODY, "t", 0) for name in "ab"]
        assert [route.epoch for route in routes] == [2, 2]
        with pytest.raises(NotLeader):
            await world.brokers["a"].epoch_end(ANYBODY, "t", 0, 1)
        await world.take(0)
        route = world.brokers["a"].route(ANYBODY, "t", 0)
        assert (route.leader, route.epoch) == (None, -1)


async def test_a_replaced_leader_says_nothing_of_an_epoch() -> None:
    """It is cut off from etcd and has not heard of the new leader. The log tells it."""
    async with running_world(dict.fromkeys("ab", MemoryObjectStore()), shards=1) as world:
        a, b = world.brokers["a"], world.brokers["b"]
        await a.create_topic(ANYBODY, "t", 1, {})
        await appended(a, part(numbered(0, 1)))
        world.coordinations["a"].cut_off()
        await world.usurp(0, "b")
        await until(lambda: b.shards.leads(0))
        await b.known_topic(ANYBODY, "t")
        await appended(b, part(numbered(1, 1)))
        with pytest.raises(LeaderUnknown):
            await a.epoch_end(ANYBODY, "t", 0, 1)
        assert await b.epoch_end(ANYBODY, "t", 0, 1) == EpochEnd(1, 1)


async def test_a_topic_that_does_not_exist_has_no_epochs() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        with pytest.raises(NotFound):
            await broker.epoch_end(ANYBODY, "t", 0, 1)
        await broker.create_topic(ANYBODY, "t", 1, {})
        answers = await asyncio.gather(*(broker.epoch_end(ANYBODY, "t", 0, 1) for _ in range(3)))
        assert answers == [EpochEnd(1, 0)] * 3
