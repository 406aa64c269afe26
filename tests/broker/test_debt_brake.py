"""Producers are delayed and then refused while too much is not archived, and nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import hashlib
import logging

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker, until
from tests.broker.drafts import draft, numbered, offsets_of
from tests.broker.gated_store import GatedObjectStore
from tests.broker.set_clock import SetClock
from tests.broker.test_measurements import scraped

from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import Acks, ProduceOptions, ProducerSequence
from tidelog.services.broker.shard.debt_brake import DELAY_S_MAX, DebtBrake
from tidelog.services.broker.telemetry.brake_figures import SLOW_SHARE, pressure
from tidelog.storage.errors import Overloaded
from tidelog.storage.layout import MANIFESTS_PREFIX
from tidelog.storage.stores.memory import MemoryObjectStore

ALL = FetchLimits(1_000_000, 1 << 30)
LIMIT = 1 << 20


class RecordingClock(SetClock):
    """Waits no time, and notes how long it was asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waited_s.append(seconds)
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 0.0), (SLOW_SHARE, 0.0), (0.875, 0.5), (0.95, 0.8), (1.0, 1.0), (3.0, 1.0)]
)
def test_the_pressure_grows_in_proportion_between_three_quarters_and_the_limit(share: float, expected: float) -> None:
    assert pressure(int(share * 1_000_000), 1_000_000) == pytest.approx(expected, abs=1e-5)


async def test_a_produce_waits_in_proportion_and_is_refused_at_the_limit(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    debt, clock = [0], RecordingClock()
    brake = DebtBrake(lambda: debt[0], 1_000, clock)
    for debt[0] in (0, 750, 875, 950, 999):
        await brake.delay()
        brake.check()
    assert clock.waited_s == pytest.approx([0.5 * DELAY_S_MAX, 0.8 * DELAY_S_MAX, 0.996 * DELAY_S_MAX])
    debt[0] = 1_000
    await brake.delay()
    assert len(clock.waited_s) == 3, "it is refused at once"
    with pytest.raises(Overloaded, match=r"archiver\.debt\.max\.bytes") as refused:
        brake.check()
    assert refused.value.retry_after_s > 0
    assert (brake.figures().delayed, brake.figures().refused) == (3, 1)
    debt[0] = 700
    brake.observe()
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "produces are delayed",
        "produces are no longer delayed",
    ]


async def test_an_archiver_that_hangs_delays_and_refuses_producers_until_it_goes_on() -> None:
    """Every record that was acknowledged is there, also if its first try was refused."""
    gated, clock = GatedObjectStore(MemoryObjectStore()), SetClock()
    async with running_broker(
        gated,
        shards=2,
        archiver_interval_ms=10,
        archiver_debt_max_bytes=LIMIT,
        flush_max_bytes=1 << 16,
        clock=clock,
    ) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {})
        gated.hold(MANIFESTS_PREFIX)
        noise = [_random(number) for number in range(64)]
        sent, delays, refused = 0, 0, None
        while refused is None:
            try:
                await broker.produce(ANYBODY, "t", draft(noise), ProduceOptions(partition=sent % 2))
                sent += 1
            except Overloaded as error:
                refused = error
            delays = broker.measurements().brake.delayed
        assert delays > 0
        assert broker.status().ready
        assert "produces are refused" in broker.status().reason
        debt_bytes = broker.measurements().brake.debt_bytes
        assert LIMIT <= debt_bytes <= LIMIT + (1 << 18), "at most the produces that had passed"
        assert scraped(broker)["tidelog_produce_brake", ""] == 1
        for _ in range(3):
            with pytest.raises(Overloaded):
                await broker.produce(ANYBODY, "t", draft(noise), ProduceOptions(partition=0))
        assert broker.measurements().brake.debt_bytes == debt_bytes, "nothing of them is buffered"
        assert broker.measurements().buffered_bytes == 0
        gated.gate.set()
        await until(lambda: broker.measurements().brake.pressure == 0)
        await broker.produce(ANYBODY, "t", draft(noise), ProduceOptions(partition=sent % 2))
        sent += 1
        await until(lambda: broker.measurements().brake.debt_bytes == 0)
        assert broker.status().reason == ""
        for partition in (0, 1):
            count = 64 * ((sent + 1 - partition) // 2)
            found: list[int] = []
            while len(found) < count:
                found += offsets_of(await broker.fetch(ANYBODY, "t", partition, len(found), ALL))
            assert found == list(range(count))


async def test_at_the_limit_a_repeated_batch_is_answered_and_readers_are_served() -> None:
    async with running_broker(MemoryObjectStore(), shards=1, archiver_debt_max_bytes=LIMIT) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        options = ProduceOptions(Acks.ALL, partition=0, producer=ProducerSequence("p", 0, 0))
        large = draft([_random(number) for number in range(64 * 18)])
        first = await broker.produce(ANYBODY, "t", large, options)
        assert broker.measurements().brake.pressure == 1
        again = await broker.produce(ANYBODY, "t", large, options)
        assert (again[0].base_offset, again[0].duplicate) == (first[0].base_offset, True)
        with pytest.raises(Overloaded):
            await broker.produce(ANYBODY, "t", numbered(0, 1), ProduceOptions(partition=0))
        assert offsets_of(await broker.fetch(ANYBODY, "t", 0, 0, FetchLimits(10, 1 << 20))) == list(range(10))
        await broker.archive_now()
        await broker.produce(ANYBODY, "t", numbered(0, 1), ProduceOptions(partition=0))


def _random(number: int) -> bytes:
    """A kilobyte that does not compress."""
    return b"".join(hashlib.sha256(b"%d-%d" % (number, part)).digest() for part in range(32))
