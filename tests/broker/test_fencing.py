"""Two brokers on one bucket: the later one leads; the earlier one steps down for good and says why."""

import asyncio
from dataclasses import replace

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import SETTINGS, running_broker, until
from tests.broker.drafts import numbered, values_of
from tests.broker.gated_store import GatedObjectStore
from tests.broker.logs import partition_log

from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import Acks, ProduceOptions, ProducerSequence
from tidelog.services.runtime.wiring import open_broker
from tidelog.storage.errors import Fenced
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.memory import MemoryObjectStore

ALL = FetchLimits(1_000_000, 1 << 30)
TO_ZERO = ProduceOptions(partition=0)


async def test_a_second_broker_fences_the_first_which_does_not_fight_back(store: ObjectStore) -> None:
    async with running_broker(store, shards=1) as first:
        await first.create_topic(ANYBODY, "t", 1, {})
        await first.produce(ANYBODY, "t", numbered(0, 2), TO_ZERO)
        async with running_broker(store, shards=1) as second:
            with pytest.raises(Fenced):
                await first.produce(ANYBODY, "t", numbered(9, 1), TO_ZERO)
            await second.produce(ANYBODY, "t", numbered(2, 1), TO_ZERO)
            for _ in range(3):
                with pytest.raises(Fenced):
                    await first.produce(ANYBODY, "t", numbered(9, 1), TO_ZERO)
            assert values_of(await second.fetch(ANYBODY, "t", 0, 0, ALL)) == [b"0", b"1", b"2"]
            assert [shard.leading for shard in second.status().shards] == [True]
            assert second.status().ready
            status = first.status()
            assert not status.ready
            assert "another writer took over" in status.reason
            assert [shard.leading for shard in status.shards] == [False]


async def test_requests_that_wait_at_a_fenced_broker_get_an_answer() -> None:
    store = MemoryObjectStore()
    async with running_broker(store, shards=1) as first:
        await first.create_topic(ANYBODY, "t", 1, {})
        waiting = asyncio.create_task(first.fetch(ANYBODY, "t", 0, 0, FetchLimits(1, 1, 60_000)))
        await until(lambda: first.measurements().waiting_fetches == 1)
        async with running_broker(store, shards=1):
            with pytest.raises(Fenced):
                await first.produce(ANYBODY, "t", numbered(0, 1), TO_ZERO)
            with pytest.raises(Fenced):
                await waiting
            with pytest.raises(Fenced):
                await first.fetch(ANYBODY, "t", 0, 0, ALL)


async def test_everything_buffered_behind_a_fenced_entry_fails_and_frees_its_room() -> None:
    inner = MemoryObjectStore()
    gated = GatedObjectStore(inner)
    async with running_broker(gated, shards=1, flush_max_bytes=20_000, acks1_loss_max_ms=60_000) as first:
        await first.create_topic(ANYBODY, "t", 1, {})
        gated.hold()
        waiting = [asyncio.create_task(first.produce(ANYBODY, "t", numbered(n, 1), TO_ZERO)) for n in range(30)]
        await gated.arrived.wait()
        (answer,) = await first.produce(ANYBODY, "t", numbered(99, 1), ProduceOptions(Acks.LEADER, partition=0))
        assert answer.base_offset == 30
        async with running_broker(inner, shards=1) as second:
            gated.gate.set()
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert {type(result) for result in results} == {Fenced}
            assert first.measurements().buffered_bytes == 0
            assert values_of(await second.fetch(ANYBODY, "t", 0, 0, ALL)) == []


async def test_a_retry_at_the_new_leader_is_in_the_log_once(store: ObjectStore) -> None:
    """Inv. 7: the first leader's answer was lost, and the second leader knows the batch."""
    options = ProduceOptions(partition=0, producer=ProducerSequence("p", 0, 0))
    async with running_broker(store, shards=1) as first:
        await first.create_topic(ANYBODY, "t", 1, {})
        await first.produce(ANYBODY, "t", numbered(0, 3), options)
        async with running_broker(store, shards=1) as second:
            (again,) = await second.produce(ANYBODY, "t", numbered(0, 3), options)
            assert (again.base_offset, again.duplicate) == (0, True)
            assert values_of(await second.fetch(ANYBODY, "t", 0, 0, ALL)) == [b"0", b"1", b"2"]


async def test_topics_that_the_first_broker_made_while_the_second_opened_are_not_taken_for_deleted() -> None:
    """Otherwise the second broker's archiver would drop their records."""
    inner = MemoryObjectStore()
    gated = GatedObjectStore(inner)
    async with running_broker(inner, shards=1) as first:
        gated.hold()
        second = open_broker(replace(SETTINGS, shards=1), Runtime(), store=gated)
        opening = asyncio.create_task(second.start())
        await gated.arrived.wait()  # the second broker has read the topics and is about to claim the log
        await first.create_topic(ANYBODY, "late", 1, {})
        await first.produce(ANYBODY, "late", numbered(0, 5), TO_ZERO)
        gated.gate.set()
        await opening
        await second.archive_now()
        log = await partition_log(second, "late", 0)
        assert (log.cold_end, log.high_watermark) == (5, 5)
        assert values_of(await second.fetch(ANYBODY, "late", 0, 0, ALL)) == [b"%d" % n for n in range(5)]
        await second.aclose()
