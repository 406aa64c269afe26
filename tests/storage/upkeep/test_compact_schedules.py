"""Writes, passes of two compactors, crashes, merges, readers and time in any order (Hypothesis).

After every step the log is a part of the written records, in order, with the same map of keys (`Partition.check`). A
reader that reads in pieces while other steps happen ends with the same map as a reader of all records, if it takes less
than ``delete.retention.ms``. The model is a plain dict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.storage.archive_scenes import NEVER, Crash, CrashingStore
from tests.storage.topic_segments import decode_topic_segment
from tests.storage.upkeep.compaction_scenes import RULES, Topic, Write, view_of, whole_pass
from tests.storage.upkeep.merge_scenes import PLACE, encoded

from tidelog.storage.errors import Conflict
from tidelog.storage.manifests.shard_manifest import ManifestChange
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.upkeep.key_spill import Hashes, Keys, spread_hash
from tidelog.storage.upkeep.merge_plan import merged
from tidelog.storage.upkeep.topic_runs import by_run

RETENTION_S = 1_000
SCHEDULE_RULES = replace(RULES, delete_retention_ms=RETENTION_S * 1_000, min_compaction_lag_ms=50_000)


def two_hashes(keys: Keys) -> Hashes:
    """Nearly all keys collide."""
    return (np.asarray(pa.compute.binary_length(keys)) & 1).astype(np.uint32) << np.uint32(31)


@dataclass(frozen=True)
class Append:
    parts: Mapping[int, Sequence[Write]]


@dataclass(frozen=True)
class Pass:
    """A pass of a worker that is killed after some requests, or never (`NEVER`). Before its request `met_at`, other
    workers do `meanwhile`."""

    crash_at: int
    after: bool
    memory_bytes: int
    segment_bytes: int
    collisions: bool
    met_at: int = NEVER
    meanwhile: tuple[Append | Merge | Pass, ...] = ()


@dataclass(frozen=True)
class Merge:
    """A merge of the runs from the one at place `first` on, if they are all clean or all dirty."""

    first: int
    count: int


@dataclass(frozen=True)
class Read:
    """Read some more records."""

    records: int


@dataclass(frozen=True)
class Wait:
    seconds: int


@dataclass(frozen=True)
class Jump:
    """Set the wall clock to another time: after that a slow reader may rely on nothing."""

    seconds: int


Action = Append | Pass | Merge | Read | Wait | Jump

keys = st.sampled_from([b"", b"a", b"b", b"cc", b"dd", None])
values = st.sampled_from([b"", b"x", b"yy", None, None])
writes = st.lists(st.tuples(keys, values), min_size=1, max_size=6)
appends = st.builds(Append, st.dictionaries(st.integers(0, 2), writes, min_size=1))
merges = st.builds(Merge, st.integers(0, 5), st.integers(2, 4))
crashes = st.one_of(st.just(NEVER), st.integers(0, 25))
memories = st.sampled_from([300, 2_000, 1 << 20])
sizes = st.sampled_from([1, 4_000, 1 << 27])
lone_passes = st.builds(Pass, crashes, st.booleans(), memories, sizes, st.booleans())
passes = st.builds(
    Pass,
    crashes,
    st.booleans(),
    memories,
    sizes,
    st.booleans(),
    st.integers(0, 20),
    st.lists(appends | merges | lone_passes, max_size=2).map(tuple),
)
waits = st.builds(Wait, st.sampled_from([1, 60, 400, RETENTION_S + 70]))
jumps = st.builds(Jump, st.sampled_from([-100_000, -60, 60, RETENTION_S, 10_000_000]))
reads = st.builds(Read, st.integers(1, 8))
schedules = st.lists(st.one_of(appends, appends, passes, passes, merges, reads, reads, waits, jumps), max_size=30)


@dataclass
class Reader:
    """Reads partition 0 from the beginning to the end repeatedly, some records at a time, and keeps the map of what it
    saw."""

    began_s: float
    position: int = 0
    seen: list[Write] = field(default_factory=list)


class _MetStore(CrashingStore):
    """Lets other workers act before request `met_at`."""

    def __init__(self, inner: ObjectStore, schedule: Schedule, one: Pass) -> None:
        super().__init__(inner, one.crash_at, after=one.after)
        self._schedule = schedule
        self._one = one

    async def _hold_up(self, number: int) -> None:
        if number == self._one.met_at:
            for action in self._one.meanwhile:
                await self._schedule.act(action)


class Schedule:
    """One run; `ended` counts readers that reached the end."""

    def __init__(self, folder: Path) -> None:
        self.topic = Topic(folder / "spill")
        self.reader = Reader(self.topic.clock.now_s)
        self.seed = 0
        self.ended = 0

    async def act(self, action: Action) -> None:
        match action:
            case Append(parts):
                await self.topic.append(parts)
            case Pass():
                await self._pass(action)
            case Merge(first, count):
                await self._merge(first, count)
            case Read(records):
                await self._read(records)
            case Wait(seconds):
                self.topic.clock.now_s += seconds
            case Jump(seconds):
                self.topic.clock.now_s = max(0, self.topic.clock.now_s + seconds)
                self.reader = Reader(self.topic.clock.now_s)
        await self.topic.check()

    async def _pass(self, one: Pass) -> None:
        self.seed += 1
        store = _MetStore(self.topic.store, self, one)
        hash_keys = two_hashes if one.collisions else spread_hash
        task = self.topic.task(store, seed=self.seed, memory_bytes=one.memory_bytes, hash_keys=hash_keys)
        rules = replace(SCHEDULE_RULES, segment_bytes=one.segment_bytes)
        try:
            await whole_pass(task, self.topic.log(store), rules)
        except (Crash, Conflict):
            return

    async def _merge(self, first: int, count: int) -> None:
        topic, store = await self.topic.state(), self.topic.store
        runs = by_run(topic.segments)[first : first + count]
        if len(runs) < 2:
            return
        inputs = [segment for run in runs for segment in run]
        tables = [decode_topic_segment(each, PLACE, (await store.get(each.key)).data) for each in inputs]
        records = pa.concat_tables(tables).sort_by([("partition", "ascending"), ("offset", "ascending")])
        made = encoded(records.combine_chunks(), self.topic.entropy.new_id(), runs[-1][0].run)
        await store.put(made.segment.key, made.body)
        with suppress(Conflict):  # some are clean and some are dirty
            change = ManifestChange(ChangeKind.MERGE, {PLACE.topic_id: merged(topic, inputs, [made.segment])})
            log = self.topic.log()
            await log.append(change, await log.latest())

    async def _read(self, records: int) -> None:
        now_s = self.topic.clock.now_s
        if now_s - self.reader.began_s >= RETENTION_S:
            self.reader = Reader(now_s)  # too slow: the reader may have missed a tombstone
        found = (await self.topic.records(self.reader.position)).slice(0, records)
        self.reader.seen += zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True)
        if found.num_rows:
            self.reader.position = found["offset"][-1].as_py() + 1
        if self.reader.position == len(self.topic.history[0]):
            assert view_of(self.reader.seen) == view_of(self.topic.history[0])
            self.reader = Reader(now_s)
            self.ended += 1


async def run(folder: Path, actions: Sequence[Action]) -> Schedule:
    schedule = Schedule(folder)
    for action in actions:
        await schedule.act(action)
    return schedule


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(actions=schedules)
def test_no_order_of_events_changes_the_final_map_of_a_reader(
    tmp_path_factory: pytest.TempPathFactory, actions: list[Action]
) -> None:
    folder = tmp_path_factory.getbasetemp() / "schedules"
    asyncio.run(run(folder, actions))
    assert not (folder / "spill").exists() or list((folder / "spill").iterdir()) == []


async def test_a_slow_reader_learns_of_deletions_that_a_pass_was_over_meanwhile(tmp_path: Path) -> None:
    """It read the value earlier; the tombstone still exists when the reader reaches it."""
    whole = Pass(NEVER, after=False, memory_bytes=1 << 20, segment_bytes=1 << 27, collisions=False)
    done = await run(
        tmp_path,
        [
            Append({0: [(b"a", b"1"), (b"b", b"2")]}),
            Read(1),
            Append({0: [(b"a", None), (b"c", b"3")]}),
            Wait(60),
            whole,
            Wait(RETENTION_S - 200),
            Append({0: [(b"d", b"4")]}),
            Wait(60),
            whole,
            Read(9),
        ],
    )
    assert done.ended == 1
