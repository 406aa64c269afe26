"""A small WAL in a bucket with known contents, and stores that crash or stall at a chosen call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa
from tests.storage.record_tables import SHOP, WEB, WEB_1, record_table, records_header, spans_of, wal_table
from tests.storage.topic_segments import decode_topic_segment

from tidelog.storage.archive.archiver import Archiver, ArchiverSettings
from tidelog.storage.errors import Unavailable
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ShardManifest
from tidelog.storage.manifests.shard_values import EMPTY, ColdState
from tidelog.storage.object_store import ObjectStore, list_all
from tidelog.storage.records import RECORD_SCHEMA, from_stored
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.stores.wrapping import Attempt, Request, WrappingObjectStore
from tidelog.storage.wal.floor_trust import FLOOR_TRUST_S
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_codec import ParquetWalCodec
from tidelog.storage.wal.wal_entry import PreparedEntry, ProducerMark
from tidelog.storage.wal.wal_tail import find_tail

TOPIC_NAMES = {WEB.topic_id: "web", SHOP.topic_id: "shop"}
PLACES = (WEB, WEB_1, SHOP)
GRACE_S = 60.0
NEVER = 1 << 40
SETTINGS = ArchiverSettings(grace_s=GRACE_S)

T = TypeVar("T")


@dataclass
class ManualClock:
    """A clock that a test moves."""

    now_s: float = 1_000.0

    def monotonic(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return int(self.now_s * 1_000)

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass
class Scene:
    """A log that grows by `append`, and the next offset of each partition."""

    store: ObjectStore
    clock: ManualClock = field(default_factory=ManualClock)
    next_seq: int = 0
    shard: int = 0
    next_offsets: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def log(self) -> ShardLog:
        """The manifest, as a new process sees it."""
        return ShardLog(self.store, self.shard, self.runtime())

    @property
    def wal(self) -> Wal:
        return Wal(self.store, self.shard, ParquetWalCodec(), self.log)

    def runtime(self, seed: int = 0) -> Runtime:
        return Runtime(self.clock, SeededEntropy(seed))

    async def begin_epoch(self, epoch: int) -> None:
        await self._create(epoch, {}, ())

    async def append(
        self, counts: Mapping[TopicPartition, int], *, epoch: int = 1, producer: str | None = None
    ) -> None:
        """Append one entry with the given number of records per partition. With `producer`, the records of each
        partition are one batch of it."""
        marks = [
            ProducerMark(place, producer, 0, base, base + count - 1, base)
            for place, count in sorted(counts.items())
            if producer is not None
            for base in [self.next_offsets.get(place, 0)]
        ]
        await self._create(epoch, counts, marks)

    async def _create(self, epoch: int, counts: Mapping[TopicPartition, int], marks: Sequence[ProducerMark]) -> None:
        spans = spans_of(*((place, self.next_offsets.get(place, 0), count) for place, count in sorted(counts.items())))
        header = records_header(spans, shard=self.shard, seq=self.next_seq, epoch=epoch, producers=marks)
        await self.wal.create(PreparedEntry(header, ParquetWalCodec().encode(header, wal_table(spans))))
        self.next_seq += 1
        self.next_offsets.update({span.topic_partition: span.next_offset for span in spans})


async def small_scene(store: ObjectStore) -> Scene:
    """A log with two epochs, five entries and three partitions."""
    scene = Scene(store)
    await scene.begin_epoch(1)
    await scene.append({WEB: 3, SHOP: 2}, producer="p")
    await scene.append({WEB: 1, WEB_1: 4})
    await scene.begin_epoch(2)
    await scene.append({WEB: 2, SHOP: 1}, epoch=2, producer="p")
    return scene


async def manifest_of(store: ObjectStore, shard: int = 0) -> ShardManifest:
    """The newest version with all lists, as a new process reads it."""
    log = ShardLog(store, shard, Runtime())
    manifest = await log.latest()
    return await log.with_lists(manifest, manifest.topics)


async def state_of(store: ObjectStore, place: TopicPartition) -> ColdState:
    """The state of a partition in the newest version."""
    topic = (await manifest_of(store)).topics.get(place.topic_id)
    return topic.partition(place.partition) if topic else EMPTY


async def log_of(store: ObjectStore, place: TopicPartition) -> pa.Table:
    """A partition as readers see it: the segments of the manifest, then the WAL from the cold end (inv. 5)."""
    manifest = await manifest_of(store)
    tables, cold_end = [RECORD_SCHEMA.empty_table()], 0
    if topic := manifest.topics.get(place.topic_id):
        cold_end = topic.partition(place.partition).cold_end
        at = SegmentPlace(topic.name, place.topic_id, 0)
        for found in topic.segments.spans(place.partition):
            rows = decode_topic_segment(found.segment, at, (await store.get(found.segment.key)).data)
            tables.append(from_stored(rows.slice(found.first_row, found.span.records)).drop_columns(["partition"]))
    wal = Scene(store).wal
    tail = await find_tail(wal)
    for seq in range(tail.floor.number, tail.next_seq):
        entry = await wal.read(seq)
        for span in entry.header.spans:
            if span.topic_partition == place and span.next_offset > cold_end:
                tables.append(entry.records_of(span).slice(max(0, cold_end - span.base_offset)))
    return pa.concat_tables(tables)


async def check_logs(scene: Scene, store: ObjectStore) -> None:
    """Check that each partition holds all its records, once and in order (inv. 5)."""
    for place, next_offset in scene.next_offsets.items():
        assert (await log_of(store, place)).equals(record_table(range(next_offset))), place


class Crash(BaseException):
    """The process ends here. No `except Exception` may catch it."""


class CrashingStore(WrappingObjectStore):
    """Lets `operations` calls through and crashes at the next one, before or right after it takes effect. After that no
    call gets through, whatever else is running. With another `error` it simulates a lost answer instead of a crash."""

    def __init__(self, inner: ObjectStore, operations: int, *, after: bool, error: type[BaseException] = Crash) -> None:
        super().__init__(inner)
        self._operations = operations
        self._after = after
        self._error = error
        self.calls = 0

    async def _send(self, _: Request, attempt: Attempt[T], /) -> T:
        number = self.calls
        self.calls += 1
        await self._hold_up(number)
        if number > self._operations and self._error is Crash:
            raise Crash("a dead process calls nobody")
        if number == self._operations and not self._after:
            raise self._error("before the call")
        try:
            return await attempt()
        finally:
            if number == self._operations and self._after:
                raise self._error("after the call")

    async def _hold_up(self, number: int) -> None:
        """Whether call `number` has to wait."""


def lost_answer(inner: ObjectStore, operations: int) -> CrashingStore:
    """A store that loses the answer of the call after `operations` calls, although that call took effect."""
    return CrashingStore(inner, operations, after=True, error=Unavailable)


class GatedStore(CrashingStore):
    """Pauses a process before its call number `operations`: it sets `reached` and waits for `gate`."""

    def __init__(self, inner: ObjectStore, operations: int) -> None:
        super().__init__(inner, NEVER, after=False)
        self._held = operations
        self.reached = asyncio.Event()
        self.gate = asyncio.Event()

    async def _hold_up(self, number: int) -> None:
        if number == self._held:
            self.reached.set()
            await self.gate.wait()


# ---- archivers


def archiver_of(
    scene: Scene,
    store: ObjectStore,
    *,
    seed: int = 0,
    settings: ArchiverSettings = SETTINGS,
    topic_names: Callable[[str], str | None] = TOPIC_NAMES.get,
) -> Archiver:
    """An archiver like that of a new process: it knows only the bucket."""
    runtime = scene.runtime(seed)
    log = ShardLog(store, 0, runtime)
    return Archiver(store, Wal(store, 0, ParquetWalCodec(), log), log, runtime, topic_names, settings)


async def keys(store: ObjectStore, prefix: str) -> list[str]:
    return [info.key async for info in list_all(store, prefix)]


async def pass_and_collection(scene: Scene, store: ObjectStore, seed: int = 0) -> None:
    archiver = archiver_of(scene, store, seed=seed)
    await archiver.run_once(scene.next_seq)
    scene.clock.now_s += GRACE_S
    await archiver.collect()


async def passes_far_apart(scene: Scene, store: ObjectStore) -> None:
    """The second pass uses the version that the first one appended, and must check that it is still the newest
    (`shard_log`)."""
    archiver = archiver_of(scene, store)
    await archiver.run_once(3)
    scene.clock.now_s += FLOOR_TRUST_S + 1
    await archiver.run_once(scene.next_seq)
    scene.clock.now_s += GRACE_S
    await archiver.collect()
