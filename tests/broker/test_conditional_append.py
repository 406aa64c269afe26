"""Appends that depend on an offset or a sequence: one of several rivals wins, and a retry is in the log once."""

import asyncio

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker
from tests.broker.drafts import draft, numbered, values_of
from tests.broker.gated_store import GatedObjectStore

from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions, ProducerSequence
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.errors import Invalid, OffsetConflict, ProducerFenced, SequenceConflict
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore

ALL = FetchLimits(1_000_000, 1 << 30)
TO_ZERO = ProduceOptions(partition=0)


async def fetched_values(broker: LocalBroker) -> list[bytes]:
    return values_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL))


async def test_of_racing_appends_at_one_offset_exactly_one_wins(store: ObjectStore) -> None:
    async with running_broker(store) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        for offset in range(5):
            options = ProduceOptions(partition=0, expected_offset=offset)
            results = await asyncio.gather(
                *(broker.produce(ANYBODY, "t", numbered(n, 1), options) for n in range(10)), return_exceptions=True
            )
            conflicts = [result for result in results if isinstance(result, OffsetConflict)]
            assert len(conflicts) == 9
            assert {conflict.next_offset for conflict in conflicts} == {offset + 1}


async def test_a_conflict_waits_for_the_append_that_it_rests_on() -> None:
    gated = GatedObjectStore(MemoryObjectStore())
    async with running_broker(gated, commit_timeout_ms=20_000) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        gated.hold()
        options = ProduceOptions(partition=0, expected_offset=0)
        first = asyncio.create_task(broker.produce(ANYBODY, "t", numbered(0, 1), options))
        await gated.arrived.wait()
        second = asyncio.create_task(broker.produce(ANYBODY, "t", numbered(1, 1), options))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not second.done()
        gated.gate.set()
        await first
        with pytest.raises(OffsetConflict):
            await second


async def test_a_conflict_on_committed_records_waits_for_nothing() -> None:
    gated = GatedObjectStore(MemoryObjectStore())
    async with running_broker(gated) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", numbered(0, 5), TO_ZERO)
        gated.hold()
        pending = asyncio.create_task(broker.produce(ANYBODY, "t", numbered(5, 1), TO_ZERO))
        await gated.arrived.wait()
        with pytest.raises(OffsetConflict) as raised:
            await broker.produce(ANYBODY, "t", numbered(9, 1), ProduceOptions(partition=0, expected_offset=3))
        assert raised.value.next_offset == 5
        gated.gate.set()
        await pending


async def test_appends_may_be_chained_by_expected_offsets_without_waiting() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        answers = await asyncio.gather(
            *(
                broker.produce(ANYBODY, "t", numbered(n * 2, 2), ProduceOptions(partition=0, expected_offset=n * 2))
                for n in range(20)
            )
        )
        assert [answer.base_offset for (answer,) in answers] == list(range(0, 40, 2))


async def test_a_batch_sent_again_is_in_the_log_once_and_answered_as_the_first_time(store: ObjectStore) -> None:
    async with running_broker(store) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        options = ProduceOptions(partition=0, producer=ProducerSequence("p", 0, 0))
        (first,) = await broker.produce(ANYBODY, "t", draft([b"a", b"b"], timestamps=[5, 3]), options)
        (again,) = await broker.produce(ANYBODY, "t", draft([b"a", b"b"], timestamps=[5, 3]), options)
        assert (again.base_offset, again.count, again.timestamp_ms, again.duplicate) == (0, 2, 5, True)
        assert not first.duplicate
        assert await fetched_values(broker) == [b"a", b"b"]


async def test_a_duplicate_of_a_buffered_batch_is_answered_once_that_is_committed() -> None:
    gated = GatedObjectStore(MemoryObjectStore())
    async with running_broker(gated) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        gated.hold()
        options = ProduceOptions(partition=0, producer=ProducerSequence("p", 0, 0))
        first = asyncio.create_task(broker.produce(ANYBODY, "t", numbered(0, 2), options))
        await gated.arrived.wait()
        again = asyncio.create_task(broker.produce(ANYBODY, "t", numbered(0, 2), options))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not again.done()
        gated.gate.set()
        ((one,), (two,)) = await asyncio.gather(first, again)
        assert (one.base_offset, two.base_offset, two.duplicate) == (0, 0, True)
        assert await fetched_values(broker) == [b"0", b"1"]


async def test_a_retried_conditional_append_is_a_duplicate_and_no_conflict() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        options = ProduceOptions(partition=0, expected_offset=0, producer=ProducerSequence("p", 0, 0))
        await broker.produce(ANYBODY, "t", numbered(0, 2), options)
        (again,) = await broker.produce(ANYBODY, "t", numbered(0, 2), options)
        assert again.duplicate


async def test_gaps_and_old_epochs_are_refused() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(
            ANYBODY, "t", numbered(0, 2), ProduceOptions(partition=0, producer=ProducerSequence("p", 1, 0))
        )
        with pytest.raises(SequenceConflict):
            await broker.produce(
                ANYBODY, "t", numbered(0, 2), ProduceOptions(partition=0, producer=ProducerSequence("p", 1, 3))
            )
        with pytest.raises(ProducerFenced):
            await broker.produce(
                ANYBODY, "t", numbered(0, 2), ProduceOptions(partition=0, producer=ProducerSequence("p", 0, 2))
            )
        assert await fetched_values(broker) == [b"0", b"1"]


async def test_conditions_need_a_partition() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        for options in (ProduceOptions(expected_offset=0), ProduceOptions(producer=ProducerSequence("p", 0, 0))):
            with pytest.raises(Invalid):
                await broker.produce(ANYBODY, "t", numbered(0, 1), options)
