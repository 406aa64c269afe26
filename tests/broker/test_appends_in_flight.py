"""A producer with several requests in flight: they are placed in order before the first is committed. Answers wait."""

import asyncio

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker, until
from tests.broker.drafts import numbered
from tests.broker.gated_store import GatedObjectStore
from tests.broker.part_drafts import appended, batch, errors_of, offsets, part, stored_values
from tests.broker.test_denied import RefusingStore
from tests.coordinator.virtual_time import LoopClock, virtually

from tidelog.services.broker.api.fetch import Anchor, Position
from tidelog.services.broker.api.produce import Acks, Appended
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.errors import Denied, Fenced, ProducerFenced, SequenceConflict, Unavailable
from tidelog.storage.stores.counting import CountingObjectStore, Kind
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb

IN_FLIGHT = 5


async def proved(broker: LocalBroker) -> None:
    """Return when everything that only needs a proof of leadership and was asked before is answered."""
    for _ in range(3):
        await broker.resolve(ANYBODY, "t", 0, Position(Anchor.LATEST))
        for _ in range(10):
            await asyncio.sleep(0)


async def test_requests_are_placed_in_order_while_the_first_is_not_committed() -> None:
    gated = GatedObjectStore(MemoryObjectStore())
    counting = CountingObjectStore(gated)
    async with running_broker(counting, shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        gated.hold()
        before = counting.usage()
        requests = [await broker.append_parts(ANYBODY, [batch(3 * n, 3)], Acks.ALL) for n in range(IN_FLIGHT)]
        answers = [asyncio.create_task(request.answers()) for request in requests]
        await gated.arrived.wait()
        assert not any(answer.done() for answer in answers)
        gated.gate.set()
        assert offsets([one for answer in await asyncio.gather(*answers) for one in answer]) == [0, 3, 6, 9, 12]
        assert (counting.usage() - before).requests(Verb.CREATE, kind=Kind.WAL) <= 2
        assert await stored_values(broker) == list(range(15))


@pytest.mark.parametrize(("acks", "offset"), [(Acks.NONE, None), (Acks.LEADER, 0)])
async def test_without_acks_of_all_an_answer_does_not_wait_for_the_commit(acks: Acks, offset: int | None) -> None:
    gated = GatedObjectStore(MemoryObjectStore())
    async with running_broker(gated, shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        gated.hold()
        (answer,) = await appended(broker, batch(0), acks=acks)
        assert (answer.base_offset, answer.error) == (offset, None)
        assert not gated.gate.is_set()
        gated.gate.set()


async def test_while_the_store_refuses_commits_nothing_is_acknowledged() -> None:
    store = RefusingStore()
    async with running_broker(store, shards=1, commit_timeout_ms=300, shutdown_timeout_ms=50) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {})
        await appended(broker, part(numbered(0, 1), 1))
        store.error = Denied("403 ExpiredToken")
        waiting = await broker.append_parts(ANYBODY, [part(numbered(1, 1), 1)], Acks.ALL)
        await until(lambda: not broker.status().ready)
        answers = [
            *await appended(broker, batch(0), acks=Acks.NONE),
            *await appended(broker, batch(1), acks=Acks.LEADER),
        ]
        assert errors_of([*answers, *await waiting.answers()]) == [Denied] * 3


async def test_a_gap_behind_buffered_records_is_refused_when_they_are_committed_and_holds_up_nobody() -> None:
    gated = GatedObjectStore(MemoryObjectStore())
    async with running_broker(gated, shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        gated.hold()
        first = await broker.append_parts(ANYBODY, [batch(0, 2)], Acks.ALL)
        gap = await broker.append_parts(ANYBODY, [batch(7)], Acks.ALL)
        shorter = await broker.append_parts(ANYBODY, [batch(0)], Acks.ALL)
        second = await broker.append_parts(ANYBODY, [batch(2)], Acks.ALL)
        refusals = [asyncio.create_task(request.answers()) for request in (gap, shorter)]
        await proved(broker)
        assert not any(refusal.done() for refusal in refusals), "the records before might be lost"
        gated.gate.set()
        assert offsets([*await first.answers(), *await second.answers()]) == [0, 2]
        for refusal in refusals:
            assert errors_of(await refusal) == [SequenceConflict]
        assert await stored_values(broker) == [0, 1, 2]


async def test_a_refusal_in_flight_is_for_what_was_in_the_log_when_it_was_placed() -> None:
    """The batch after it fills the gap. The refused one is not appended afterwards."""
    gated = GatedObjectStore(MemoryObjectStore())
    async with running_broker(gated, shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        gated.hold()
        requests = [await broker.append_parts(ANYBODY, [batch(first)], Acks.ALL) for first in (0, 2, 1)]
        gated.gate.set()
        answers = [one for request in requests for one in await request.answers()]
        assert errors_of(answers) == [None, SequenceConflict, None]
        (retried,) = await appended(broker, batch(2))
        assert retried.base_offset == 2


async def test_when_the_buffered_batches_fail_a_gap_behind_them_is_not_refused_but_unknown() -> None:
    inner = MemoryObjectStore()
    gated = GatedObjectStore(inner)
    async with running_broker(gated, shards=1) as first:
        await first.create_topic(ANYBODY, "t", 1, {})
        gated.hold()
        requests = [await first.append_parts(ANYBODY, [batch(n)], Acks.ALL) for n in (0, 1, 2, 9)]
        answering = [asyncio.create_task(request.answers()) for request in requests]
        await proved(first)
        async with running_broker(inner, shards=1) as second:
            gated.gate.set()
            answers = [one for answers in await asyncio.gather(*answering) for one in answers]
            assert errors_of(answers) == [Fenced] * 4
            retried = [one for n in range(4) for one in await appended(second, batch(n))]
            assert offsets(retried) == [0, 1, 2, 3]
            assert await stored_values(second) == [0, 1, 2, 3]


async def test_after_a_commit_of_unknown_outcome_all_retries_are_in_the_log_once() -> None:
    """The entry with the first batches is in the log, and its answer is lost; those behind it are not."""
    inner = MemoryObjectStore()
    gated = GatedObjectStore(inner)
    async with running_broker(gated, shards=1, flush_max_bytes=1) as first:
        await first.create_topic(ANYBODY, "t", 1, {})
        await appended(first, batch(0))
        gated.hold()
        requests = [await first.append_parts(ANYBODY, [batch(n)], Acks.ALL) for n in range(1, 1 + IN_FLIGHT)]
        await gated.arrived.wait()
        gated.gate.set()
        await requests[1].answers()
        gated.hold()
        more = [await first.append_parts(ANYBODY, [batch(n)], Acks.ALL) for n in range(6, 9)]
        async with running_broker(inner, shards=1) as second:
            gated.gate.set()
            for request in (*requests, *more):
                await request.answers()
            for n in range(4, 9):  # Kafka's producers repeat the five batches in flight, in order
                assert errors_of(await appended(second, batch(n))) == [None]
            assert await stored_values(second) == list(range(9))


async def test_a_batch_repeated_in_flight_is_answered_once_it_is_committed() -> None:
    gated = GatedObjectStore(MemoryObjectStore())
    async with running_broker(gated, shards=1, commit_timeout_ms=60_000) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        gated.hold()
        await broker.append_parts(ANYBODY, [batch(0)], Acks.ALL)
        again = asyncio.create_task(appended(broker, batch(0)))
        await proved(broker)
        assert not again.done()
        gated.gate.set()
        (answer,) = await again
        assert (answer.base_offset, answer.duplicate) == (0, True)


@virtually
async def test_the_time_for_a_commit_counts_from_the_placing() -> None:
    """Answers are written one after the other: that of the fifth request must not wait five times as long."""
    gated = GatedObjectStore(MemoryObjectStore())
    async with running_broker(gated, clock=LoopClock(), shards=1, commit_timeout_ms=300) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        gated.hold()
        requests = [await broker.append_parts(ANYBODY, [batch(n)], Acks.ALL) for n in range(IN_FLIGHT)]
        began_s = asyncio.get_running_loop().time()
        answers: list[Appended] = [one for request in requests for one in await request.answers()]
        assert errors_of(answers) == [Unavailable] * IN_FLIGHT
        assert asyncio.get_running_loop().time() - began_s < 0.9
        gated.gate.set()


async def test_a_newer_epoch_fences_the_requests_of_the_older_one_behind_it() -> None:
    gated = GatedObjectStore(MemoryObjectStore())
    async with running_broker(gated, shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        gated.hold()
        parts = [batch(0), batch(0, epoch=1), batch(1), batch(5, epoch=2), batch(1, epoch=1)]
        requests = [await broker.append_parts(ANYBODY, [one], Acks.ALL) for one in parts]
        gated.gate.set()
        answers = [one for request in requests for one in await request.answers()]
        assert errors_of(answers) == [None, None, ProducerFenced, SequenceConflict, None]
        assert await stored_values(broker) == [0, 0, 1]
