"""The store fails, is slow, or is gone: no acknowledged record is lost, none is in the log twice, and no broker
restarts."""

import asyncio

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker, until
from tests.broker.drafts import draft, numbered, offsets_of, values_of
from tests.storage.stores.faulty import FaultPlan, FaultyObjectStore

from tidelog.services.broker.api.fetch import Anchor as At
from tidelog.services.broker.api.fetch import FetchLimits, Position
from tidelog.services.broker.api.produce import ProduceOptions, ProducerSequence
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.errors import Overloaded, Unavailable
from tidelog.storage.object_store import Body, ObjectStore
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore

ALL = FetchLimits(1_000_000, 1 << 30)
GONE = FaultPlan(unavailable=1.0)
WELL = FaultPlan()
BAD_WEATHER = FaultPlan(
    unavailable=0.1,
    contended=0.05,
    reset=0.1,
    lost_answer=0.1,
    delayed=0.05,
    slow=0.2,
    slow_s_max=0.005,
    delay_s_max=0.02,
)


def faulty(inner: ObjectStore, seed: int = 1) -> FaultyObjectStore:
    return FaultyObjectStore(inner, WELL, Runtime(entropy=SeededEntropy(seed)))


async def test_after_an_outage_all_continues_without_a_restart(store: ObjectStore) -> None:
    outage = faulty(store)
    async with running_broker(outage, shards=1, buffer_max_bytes=300_000, commit_timeout_ms=60_000) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", numbered(0, 1), ProduceOptions(partition=0))
        outage.plan = GONE
        waiting = []
        while broker.measurements().buffered_bytes < 250_000:
            values = [b"%d" % (len(waiting) + 1), b"x" * 20_000]
            waiting.append(
                asyncio.create_task(broker.produce(ANYBODY, "t", draft(values), ProduceOptions(partition=0)))
            )
            await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await broker.produce(ANYBODY, "t", draft([b"x" * 60_000]), ProduceOptions(partition=0))
        # The committed record is readable, and no other:
        assert values_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL)) == [b"0"]
        outage.plan = WELL
        answers = await asyncio.gather(*waiting)
        assert [answer.base_offset for (answer,) in answers] == list(range(1, 1 + 2 * len(waiting), 2))
        values = values_of(await broker.fetch(ANYBODY, "t", 0, 1, ALL))
        assert values[::2] == [b"%d" % n for n in range(1, len(waiting) + 1)]
        assert broker.status().ready


async def test_a_commit_that_times_out_in_an_outage_may_be_retried_without_a_duplicate() -> None:
    outage = faulty(MemoryObjectStore())
    async with running_broker(outage, shards=1, commit_timeout_ms=30) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.fetch(ANYBODY, "t", 0, 0, ALL)  # the partition is known
        outage.plan = GONE
        options = ProduceOptions(partition=0, producer=ProducerSequence("p", 0, 0))
        with pytest.raises(Unavailable):
            await broker.produce(ANYBODY, "t", numbered(0, 2), options)
        outage.plan = WELL
        async with asyncio.timeout(60):
            while True:
                try:
                    (again,) = await broker.produce(ANYBODY, "t", numbered(0, 2), options)
                    break
                except Unavailable:
                    continue
        assert (again.base_offset, again.duplicate) == (0, True)
        assert values_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL)) == [b"0", b"1"]


async def test_stopping_during_an_outage_ends_in_time() -> None:
    outage = faulty(MemoryObjectStore())
    async with running_broker(outage, shards=1, shutdown_timeout_ms=50) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.fetch(ANYBODY, "t", 0, 0, ALL)
        outage.plan = GONE
        waiting = asyncio.create_task(broker.produce(ANYBODY, "t", numbered(0, 1), ProduceOptions(partition=0)))
        await until(lambda: broker.measurements().buffered_bytes > 0)
        await broker.aclose()
        with pytest.raises(Unavailable):
            await waiting
        outage.plan = WELL


@pytest.mark.parametrize("seed", range(5))
async def test_in_bad_weather_every_acknowledged_batch_is_there_once_and_in_order(seed: int) -> None:
    """Producers with sequences retry until they get an answer while archiving runs; then the broker restarts."""
    inner = MemoryObjectStore()
    weather = faulty(inner, seed)
    partitions, batches = 3, 12
    async with running_broker(weather, shards=2, commit_timeout_ms=50, delete_grace_ms=10**9) as broker:
        await broker.create_topic(ANYBODY, "t", partitions, {})
        weather.plan = BAD_WEATHER
        producing = True

        async def produce(partition: int) -> None:
            for batch in range(batches):
                sequence = ProducerSequence(f"p{partition}", 0, batch * 4)
                while True:
                    try:
                        (answer,) = await broker.produce(
                            ANYBODY, "t", numbered(batch * 4, 4), ProduceOptions(partition=partition, producer=sequence)
                        )
                        break
                    except Unavailable:
                        continue
                assert answer.base_offset == batch * 4

        async def archive() -> None:
            while producing:
                try:
                    await broker.archive_now()
                except Unavailable:
                    continue
                await asyncio.sleep(0)

        archiving = asyncio.create_task(archive())
        await asyncio.gather(*(produce(partition) for partition in range(partitions)))
        producing = False
        weather.plan = WELL
        await archiving
        await check(broker, partitions, batches * 4)
    async with running_broker(inner, shards=2) as broker:
        await check(broker, partitions, batches * 4)


async def check(broker: LocalBroker, partitions: int, count: int) -> None:
    for partition in range(partitions):
        start = await broker.resolve(ANYBODY, "t", partition, Position(At.EARLIEST))
        fetched = await broker.fetch(ANYBODY, "t", partition, start, ALL)
        assert offsets_of(fetched) == list(range(count))
        assert values_of(fetched) == [b"%d" % n for n in range(count)]


class BreaksOnce(MemoryObjectStore):
    """Raises an error that no store should raise, on demand."""

    broken = False

    async def create(self, key: str, data: Body) -> str:
        if self.broken:
            raise RuntimeError("a defect")
        return await super().create(key, data)


async def test_a_defect_on_the_way_to_the_log_leaves_nobody_waiting_and_says_so() -> None:
    store = BreaksOnce()
    async with running_broker(store, shards=1, commit_timeout_ms=20_000) as broker:
        await broker.produce(ANYBODY, "t", numbered(0, 1), ProduceOptions())
        store.broken = True
        results = await asyncio.gather(
            *(broker.produce(ANYBODY, "t", numbered(n, 1), ProduceOptions()) for n in range(5)), return_exceptions=True
        )
        assert {type(result) for result in results} == {Unavailable}
        assert "defect" in broker.status().reason
        assert broker.measurements().buffered_bytes == 0
