"""Rounds of the compactor over a bucket that a broker fills: it does the due work, and writes nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import SETTINGS, running_broker
from tests.broker.drafts import numbered, offsets_of

from tidelog.coordinator.journal import Journal
from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.runtime.opening import build_collector, build_upkeep
from tidelog.services.workers.compactor import Appended, Compactor
from tidelog.storage.errors import Invalid
from tidelog.storage.manifests import topic_lists
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.counting import CountingObjectStore, Kind
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb

TO_ZERO = ProduceOptions(partition=0)
ALL = FetchLimits(1_000_000, 1 << 30)
FAN_IN = 20
AT_ONCE = {"segment.ms": 1}
"""Segments are merged when there are two."""


@dataclass(frozen=True)
class Scene:
    """A broker that leaves upkeep to others, and its bucket."""

    store: MemoryObjectStore
    broker: LocalBroker

    async def fill(self, topic: str, segments: int, first: int = 0) -> None:
        """Append segments of five records, one after the other."""
        for segment in range(first, first + segments):
            await self.broker.produce(ANYBODY, topic, numbered(segment * 5, 5), TO_ZERO)
            await self.broker.archive_now()

    async def compactor(self, store: ObjectStore | None = None, topics: Collection[str] = ()) -> Compactor:
        """A new compactor, like that of a new process."""
        over, runtime = store or self.store, Runtime()
        settings = replace(SETTINGS, delete_grace_ms=900_000)
        upkeep, new_collector = build_upkeep(settings, over, runtime), partial(build_collector, settings, over, runtime)
        compactor = Compactor(over, Journal(over, runtime), upkeep, new_collector, runtime, topics)
        await compactor.open()
        return compactor

    async def segments(self, topic: str) -> int:
        return (await self.state(topic)).totals.segments

    async def state(self, topic: str) -> TopicState:
        """The topic in the only shard."""
        log, topic_id = ShardLog(self.store, 0, Runtime()), self.broker.topic(ANYBODY, topic).topic_id
        return (await log.with_lists(await log.latest(), [topic_id])).topics[topic_id]


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    store = MemoryObjectStore()
    async with running_broker(store, shards=1, archiver_upkeep=False) as broker:
        yield Scene(store, broker)


async def one_round(compactor: Compactor) -> list[Appended]:
    return [appended async for appended in compactor.round()]


async def test_a_round_merges_what_is_due_and_the_records_stay() -> None:
    async with scene() as there:
        await there.broker.create_topic(ANYBODY, "t", 1, AT_ONCE)
        await there.fill("t", FAN_IN)
        compactor = await there.compactor()
        [made] = [appended for appended in await one_round(compactor) if appended.change == "merge"]
        assert (made.topic, made.shard, made.removed, made.added) == ("t", 0, FAN_IN, 1)
        assert await there.segments("t") == made.segments == 1
        assert offsets_of(await there.broker.fetch(ANYBODY, "t", 0, 0, ALL)) == list(range(5 * FAN_IN))
        assert (compactor.report.topics, compactor.report.failures) == (1, 0)
        assert await one_round(compactor) == []


async def test_a_round_expires_segments_beyond_the_limit() -> None:
    async with scene() as there:
        await there.broker.create_topic(ANYBODY, "t", 1, {"retention.bytes": 1})
        await there.fill("t", 4)
        changes = [appended.change for appended in await one_round(await there.compactor())]
        assert "expire" in changes
        state = (await there.state("t")).partition(0)
        assert (state.log_start_offset, state.cold_end) == (15, 20), "without the last there is less than asked for"
        manifest = await ShardLog(there.store, 0, Runtime()).latest()
        assert len(manifest.garbage) == 3, "deleted a grace later"


async def test_the_journal_and_the_write_ahead_logs_are_never_written() -> None:
    async with scene() as there:
        await there.broker.create_topic(ANYBODY, "t", 1, AT_ONCE)
        await there.fill("t", FAN_IN)
        counting = CountingObjectStore(there.store)
        assert await one_round(await there.compactor(counting))
        usage = counting.usage()
        for kind in (Kind.META, Kind.WAL):
            assert all(usage.requests(verb, kind=kind) == 0 for verb in (Verb.PUT, Verb.CREATE, Verb.DELETE))


async def test_an_idle_shard_costs_one_request_a_round_however_many_topics_it_has() -> None:
    async with scene() as there:
        for name in "abcde":
            await there.broker.create_topic(ANYBODY, name, 1, {})
            await there.fill(name, 1)
        counting = CountingObjectStore(there.store)
        compactor = await there.compactor(counting)
        await one_round(compactor)
        before = counting.usage()
        assert await one_round(compactor) == []
        spent = counting.usage() - before
        assert spent.requests(kind=Kind.MANIFEST) == spent.requests(Verb.HEAD, kind=Kind.MANIFEST) == 1
        assert spent.requests(kind=Kind.SEGMENT) == 0


async def test_only_the_topics_that_were_named_are_tended() -> None:
    async with scene() as there:
        for topic in ("a", "b"):
            await there.broker.create_topic(ANYBODY, topic, 1, AT_ONCE)
            await there.fill(topic, 3)
        made = await one_round(await there.compactor(topics=["b"]))
        assert {appended.topic for appended in made} == {"b"}
        assert (await there.segments("a"), await there.segments("b")) == (3, 1)


async def test_a_topic_that_is_not_there_is_refused() -> None:
    async with scene() as there:
        with pytest.raises(Invalid, match="no topic 'nowhere'"):
            await there.compactor(topics=["nowhere"])


async def test_topics_made_since_are_tended_too() -> None:
    async with scene() as there:
        compactor = await there.compactor()
        assert await one_round(compactor) == []
        await there.broker.create_topic(ANYBODY, "late", 1, AT_ONCE)
        await there.fill("late", 3)
        assert {appended.topic for appended in await one_round(compactor)} == {"late"}


async def test_a_damaged_list_does_not_keep_other_topics_waiting(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 0)
    async with scene() as there:
        for topic in ("broken", "whole"):
            await there.broker.create_topic(ANYBODY, topic, 1, AT_ONCE)
            await there.fill(topic, 3)
        stored = (await there.state("broken")).stored
        assert stored is not None
        await there.store.put(stored.key, b"not a list")
        compactor = await there.compactor()
        made = await one_round(compactor)
        assert {appended.topic for appended in made} == {"whole"}
        assert (compactor.report.failures, compactor.report.damaged) == (1, 1)
        assert stored.key in caplog.text


async def test_two_compactors_in_turn_and_a_busy_archiver_do_each_others_work_no_harm() -> None:
    async with scene() as there:
        await there.broker.create_topic(ANYBODY, "t", 1, AT_ONCE)
        compactors = [await there.compactor(), await there.compactor()]
        for turn in range(6):
            await there.fill("t", 3, first=3 * turn)
            for compactor in compactors:
                await one_round(compactor)
                assert compactor.report.failures == 0
        assert offsets_of(await there.broker.fetch(ANYBODY, "t", 0, 0, ALL)) == list(range(90))
        assert await there.segments("t") < 18
