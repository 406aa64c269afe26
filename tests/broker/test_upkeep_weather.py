"""Brokers archive, do upkeep, fail and restart in any order, and no record disappears that must stay.

The test takes random steps over topics of every cleanup policy, with a store that often fails, work that is cut off
anywhere, and a clock that jumps ahead. After each step it reads from the log start to the end and compares the result
with the list of all records ever sent: the reader must get every record that no rule allows to be deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import SETTINGS
from tests.broker.drafts import draft
from tests.broker.set_clock import SetClock
from tests.storage.stores.faulty import FaultPlan, FaultyObjectStore

from tidelog.services.broker.api.fetch import Anchor, FetchLimits, Position
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.runtime.wiring import broker_parts
from tidelog.storage.errors import TidelogError
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore

HOUR_S, HOUR_MS = 3_600.0, 3_600_000
STEPS = 60
PAGE = FetchLimits(7, 1 << 20)
BAD_WEATHER = FaultPlan(unavailable=0.03, contended=0.03, reset=0.03, lost_answer=0.03, delayed=0.03, delay_s_max=0.05)
POLICIES = {"deleting": "delete", "compacted": "compact", "both": "compact,delete"}


@dataclass(frozen=True)
class Sent:
    """A record as acknowledged, or as read."""

    offset: int
    key: bytes
    value: bytes | None
    timestamp_ms: int


@dataclass
class World:
    """A bucket, the present broker on it, and all records ever sent to each topic."""

    seed: int
    clock: SetClock = field(default_factory=SetClock)
    bucket: MemoryObjectStore = field(default_factory=MemoryObjectStore)
    sent: dict[str, list[Sent]] = field(default_factory=lambda: {topic: [] for topic in POLICIES})
    deleted_below: dict[str, int] = field(default_factory=lambda: dict.fromkeys(POLICIES, 0))
    starts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(POLICIES, 0))

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    async def open(self) -> None:
        """Start a new process."""
        runtime = Runtime(self.clock, SeededEntropy(self.random.getrandbits(32)))
        self.store = FaultyObjectStore(self.bucket, FaultPlan(), runtime)
        settings = replace(SETTINGS, shards=1, archiver_memory_bytes=1 << 20)
        self.broker = LocalBroker(broker_parts(settings, runtime, self.store))
        await self.broker.start()

    async def create(self) -> None:
        for topic, policy in POLICIES.items():
            configs: dict[str, str | int | None] = {
                "cleanup.policy": policy,
                "retention.ms": HOUR_MS,
                "min.cleanable.dirty.ratio": "0",
                "delete.retention.ms": HOUR_MS // 2,
                "segment.ms": HOUR_MS // 4,
            }
            await self.broker.create_topic(ANYBODY, topic, 1, configs)

    # ---- steps

    async def produce(self, topic: str) -> None:
        base, count = len(self.sent[topic]), self.random.randint(1, 6)
        records = [
            Sent(
                offset,
                b"k%d" % self.random.randrange(4),
                None if topic != "deleting" and self.random.random() < 0.2 else b"%d" % offset,
                self.clock.now_ms() - self.random.randrange(HOUR_MS // 4),
            )
            for offset in range(base, base + count)
        ]
        sent = draft(
            [record.value for record in records],
            keys=[record.key for record in records],
            timestamps=[record.timestamp_ms for record in records],
        )
        await self.broker.produce(ANYBODY, topic, sent, ProduceOptions(partition=0))
        self.sent[topic] += records

    async def in_bad_weather(self, work: Coroutine[Any, Any, object]) -> None:
        """Run `work` on a store that often fails, sometimes cut off at a random point."""
        self.store.plan = BAD_WEATHER
        working = asyncio.ensure_future(work)
        if self.random.random() < 0.5:
            for _ in range(self.random.randrange(200)):
                await asyncio.sleep(0)
            working.cancel()
        with contextlib.suppress(TidelogError, asyncio.CancelledError):
            await working
        self.store.plan = FaultPlan()

    async def delete_records(self, topic: str) -> None:
        offset = self.random.randint(0, len(self.sent[topic]))
        start = await self.broker.delete_records(ANYBODY, topic, 0, offset)
        assert start >= offset
        self.deleted_below[topic] = max(self.deleted_below[topic], offset)

    async def restart(self) -> None:
        await self.broker.aclose()
        await self.open()

    async def step(self) -> None:
        topic = self.random.choice(list(POLICIES))
        match self.random.choices(["produce", "archive", "tend", "wait", "delete", "restart"], [6, 4, 6, 3, 0.5, 1])[0]:
            case "produce":
                await self.produce(topic)
            case "archive":
                await self.in_bad_weather(self.broker.archive_now())
            case "tend":
                await self.in_bad_weather(self.broker.upkeep_now())
            case "wait":
                self.clock.pass_time(self.random.uniform(0, HOUR_S))
            case "delete":
                await self.delete_records(topic)
            case "restart":
                await self.restart()

    # ---- what has to hold

    async def check(self) -> None:
        for topic in POLICIES:
            start, read = await self.read_all(topic)
            self._check_start(topic, start)
            self._check_records(topic, start, read)

    async def read_all(self, topic: str) -> tuple[int, Sequence[Sent]]:
        start = offset = await self.broker.resolve(ANYBODY, topic, 0, Position(Anchor.EARLIEST))
        records: list[Sent] = []
        while True:
            fetched = await self.broker.fetch(ANYBODY, topic, 0, offset, PAGE)
            for batch in fetched.batches:
                columns = [batch.column(name) for name in ("offset", "key", "value")]
                times = batch.column("timestamp").cast(pa.int64())
                records += [Sent(*row) for row in zip(*(c.to_pylist() for c in (*columns, times)), strict=True)]
            if fetched.next_offset == offset:
                assert offset == len(self.sent[topic])
                return start, records
            offset = fetched.next_offset

    def _check_start(self, topic: str, start: int) -> None:
        """The log start only moves up, and never over records that are too young to be deleted."""
        assert start >= max(self.starts[topic], self.deleted_below[topic])
        self.starts[topic] = start
        if POLICIES[topic] == "compact":
            assert start == self.deleted_below[topic]
        young_ms = self.clock.now_ms() - HOUR_MS
        superseded = {record.key: record.offset for record in self.sent[topic]} if topic == "both" else {}
        for record in self.sent[topic][self.deleted_below[topic] : start]:
            if record.value is not None and superseded.get(record.key, record.offset) == record.offset:
                assert record.timestamp_ms < young_ms, "a record went before its time"

    def _check_records(self, topic: str, start: int, read: Sequence[Sent]) -> None:
        expected = self.sent[topic][start:]
        if topic == "deleting":
            assert list(read) == expected
            return
        assert all(record == self.sent[topic][record.offset] for record in read)
        assert [record.offset for record in read] == sorted({record.offset for record in read})
        assert _as_map(read) == _as_map(expected)


def _as_map(records: Sequence[Sent]) -> dict[bytes, bytes]:
    """The state of a reader that has applied all records in order."""
    values = {record.key: record.value for record in records}
    return {key: value for key, value in values.items() if value is not None}


@pytest.mark.parametrize("seed", range(4))
async def test_no_record_that_must_stay_is_lost_by_any_failure_of_upkeep(seed: int) -> None:
    world = World(seed)
    await world.open()
    await world.create()
    for _ in range(STEPS):
        await world.step()
        await world.check()
    await world.restart()
    await world.broker.archive_now()
    await world.broker.upkeep_now()
    await world.check()
    await world.broker.aclose()
