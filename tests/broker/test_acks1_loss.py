"""`acks1.loss.max.ms` bounds the risk of acks=1: if the store stops answering, the broker acknowledges only that much
more."""

import asyncio

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker, until
from tests.broker.drafts import numbered, values_of
from tests.broker.gated_store import GatedObjectStore
from tests.coordinator.stepped_clock import SteppedClock, turn

from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import Acks, ProduceOptions, ProducerSequence
from tidelog.services.broker.shard.append_buffer import LossWindow
from tidelog.services.broker.write.produce_paths import ACKS1_LOSS_BEYOND_FLUSH_S
from tidelog.storage.errors import Fenced, Unavailable
from tidelog.storage.stores.memory import MemoryObjectStore

ALL = FetchLimits(1_000_000, 1 << 30)
FAST = ProduceOptions(Acks.LEADER, partition=0)


async def test_a_store_that_stops_answering_lets_no_more_than_the_bound_be_acknowledged() -> None:
    gated, clock = GatedObjectStore(MemoryObjectStore()), SteppedClock()
    async with running_broker(gated, clock=clock, shards=1, flush_interval_ms=0, acks1_loss_max_ms=1_000) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.fetch(ANYBODY, "t", 0, 0, ALL)
        gated.hold()
        for number in range(10):
            (answer,) = await broker.produce(ANYBODY, "t", numbered(number, 1), FAST)
            assert answer.base_offset == number
            clock.advance(0.1)
        waiting = [
            asyncio.create_task(broker.produce(ANYBODY, "t", numbered(number, 1), FAST)) for number in range(10, 15)
        ]
        for _ in range(20):
            await turn()
        assert not any(produce.done() for produce in waiting)
        gated.gate.set()
        assert [answer.base_offset for (answer,) in await asyncio.gather(*waiting)] == list(range(10, 15))
        (again,) = await broker.produce(ANYBODY, "t", numbered(15, 1), FAST)
        assert again.base_offset == 15
        await until(lambda: broker.measurements().buffered_bytes == 0)
        assert values_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL)) == [b"%d" % number for number in range(16)]


async def test_a_produce_that_waits_in_vain_has_an_unknown_outcome_and_so_has_its_retry() -> None:
    gated = GatedObjectStore(MemoryObjectStore())
    options = ProduceOptions(Acks.LEADER, partition=0, producer=ProducerSequence("p", 0, 0))
    async with running_broker(gated, shards=1, acks1_loss_max_ms=0, commit_timeout_ms=500) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.fetch(ANYBODY, "t", 0, 0, ALL)
        gated.hold()
        for _ in range(2):
            with pytest.raises(Unavailable):
                await broker.produce(ANYBODY, "t", numbered(0, 1), options)
        gated.gate.set()
        (answer,) = await broker.produce(ANYBODY, "t", numbered(0, 1), options)
        assert (answer.base_offset, answer.duplicate) == (0, True)


async def test_a_request_that_waits_at_a_fenced_leader_gets_an_answer() -> None:
    store = MemoryObjectStore()
    gated = GatedObjectStore(store)
    async with running_broker(gated, shards=1, acks1_loss_max_ms=0) as first:
        await first.create_topic(ANYBODY, "t", 1, {})
        await first.fetch(ANYBODY, "t", 0, 0, ALL)
        gated.hold()
        waiting = asyncio.create_task(first.produce(ANYBODY, "t", numbered(0, 1), FAST))
        await gated.arrived.wait()
        async with running_broker(store, shards=1):
            gated.gate.set()
            with pytest.raises(Fenced):
                await waiting


async def test_the_window_begins_with_the_oldest_batch_that_is_not_committed() -> None:
    clock = SteppedClock()
    window = LossWindow(clock)
    assert not window.is_wider(0)
    first, second = (asyncio.get_running_loop().create_future() for _ in range(2))
    window.add(first)
    clock.advance(1)
    window.add(first)
    window.add(second)
    assert window.is_wider(ACKS1_LOSS_BEYOND_FLUSH_S)
    window.settle(first)
    assert not window.is_wider(ACKS1_LOSS_BEYOND_FLUSH_S)
    clock.advance(ACKS1_LOSS_BEYOND_FLUSH_S)
    assert window.is_wider(ACKS1_LOSS_BEYOND_FLUSH_S)
    window.settle(second)
    assert not window.is_wider(0)
