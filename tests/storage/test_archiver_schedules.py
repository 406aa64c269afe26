"""Appends, passes of two archivers, crashes, collections and time in random order, repeatable by a seed.

After every step manifest and WAL form the log (inv. 5), and every deleted entry was below the floor for a grace (inv.
6).
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field

import pytest
from tests.storage.archive_scenes import (
    GRACE_S,
    NEVER,
    PLACES,
    TOPIC_NAMES,
    Crash,
    CrashingStore,
    ManualClock,
    Scene,
    check_logs,
    manifest_of,
)

from tidelog.storage.archive.archiver import Archiver, ArchiverSettings
from tidelog.storage.errors import Conflict
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_codec import ParquetWalCodec

SEEDS = 25
STEPS = 25


@dataclass
class Process:
    """An archiver and the store that may crash it."""

    archiver: Archiver
    store: CrashingStore


@dataclass
class Schedule:
    """One run. `floor_times` holds when the floor passed a number, by the one clock that all share."""

    seed: int
    clock: ManualClock = field(default_factory=ManualClock)
    bucket: MemoryObjectStore = field(default_factory=MemoryObjectStore)
    floor_times: dict[int, float] = field(default_factory=dict)
    crashes: int = 0
    conflicts: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.scene = Scene(self.bucket, self.clock)
        self.processes = [self.started(), self.started()]
        self.epoch = 0

    def started(self) -> Process:
        crash_at = self.chance.choice([NEVER, self.chance.randrange(60)])
        store = CrashingStore(self.bucket, crash_at, after=self.chance.random() < 0.5)
        runtime = Runtime(self.clock, SeededEntropy(self.chance.getrandbits(64)))
        settings = ArchiverSettings(batch_bytes=self.chance.choice([1, 500, 1 << 20]), grace_s=GRACE_S)
        log = ShardLog(store, 0, runtime)
        wal = Wal(store, 0, ParquetWalCodec(), log)
        return Process(Archiver(store, wal, log, runtime, TOPIC_NAMES.get, settings), store)

    async def step(self) -> None:
        match self.chance.choice(["append", "append", "epoch", "pass", "pass", "collect", "merge", "wait"]):
            case "append":
                places = self.chance.sample(PLACES, self.chance.randint(1, 3))
                counts = {place: self.chance.randint(1, 4) for place in places}
                await self.scene.append(counts, epoch=self.epoch, producer=self.chance.choice([None, "p"]))
            case "epoch":
                self.epoch += 1
                await self.scene.begin_epoch(self.epoch)
            case "merge":
                await self.scene.log.change([], lambda _: ManifestChange(ChangeKind.MERGE))
            case "wait":
                self.clock.now_s += self.chance.uniform(0, GRACE_S)
            case work:
                await self.work(work, self.chance.randrange(2))
        await self.check()

    async def work(self, work: str, which: int) -> None:
        process = self.processes[which]
        end = self.chance.choice([None, self.chance.randint(0, self.scene.next_seq)])
        try:
            await (process.archiver.run_once(end) if work == "pass" else process.archiver.collect())
        except Conflict:
            self.conflicts += 1
        except Crash:
            self.crashes += 1
            self.processes[which] = self.started()

    async def check(self) -> None:
        await check_logs(self.scene, self.bucket)
        floor = await self.scene.wal.floor()
        topics = (await manifest_of(self.bucket)).topics
        for topic_id, topic in topics.items():
            ends = [state.cold_end for state in topic.all_partitions.values()]
            assert topic.totals.records == sum(ends), f"{topic_id} lists a record twice"
        there = {entry.number async for entry in self.scene.wal.entries()}
        for number in range(self.scene.next_seq):
            if number < floor.number:
                self.floor_times.setdefault(number, self.clock.now_s)
            if number not in there:
                assert self.clock.now_s - self.floor_times[number] >= GRACE_S, f"entry {number} went too early"
        assert floor.number <= self.scene.next_seq
        assert not any(process.archiver.damage for process in self.processes)


async def run(seed: int) -> Schedule:
    schedule = Schedule(seed)
    for _ in range(STEPS):
        await schedule.step()
    return schedule


async def test_no_order_of_things_loses_or_doubles_a_record() -> None:
    done = [await run(seed) for seed in range(SEEDS)]
    assert sum(schedule.crashes for schedule in done) > SEEDS / 5
    assert sum(schedule.conflicts for schedule in done) > 0
    assert sum(len(schedule.floor_times) for schedule in done) > SEEDS


@pytest.mark.soak
async def test_no_order_of_things_loses_or_doubles_a_record_for_long() -> None:
    for seed in range(SEEDS, SEEDS + 1_000 * int(os.environ.get("TIDELOG_SOAK_MINUTES", "1"))):
        try:
            await run(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
