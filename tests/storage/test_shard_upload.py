"""A worker that stalled between upload and manifest uploads again, because a sweep may have deleted the first
upload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from tests.storage.archive_scenes import GRACE_S, NEVER, CrashingStore, ManualClock, keys
from tests.storage.topic_segments import decode_topic_segment
from tests.storage.upkeep.merge_scenes import PLACE, add, encoded, log_of, manifest_of, records_at, stored

from tidelog.storage.errors import Conflict, Unavailable
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, TopicChange
from tidelog.storage.manifests.shard_upload import UPLOAD_ATTEMPTS_MAX, EncodedSegment, ShardUpload
from tidelog.storage.manifests.shard_values import ChangeKind, ColdState, TopicSegment
from tidelog.storage.object_store import Body, ObjectStore
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore

SEGMENTS = "topics/web/"


@dataclass
class SplitClock(ManualClock):
    """A monotonic clock and a wall clock that can differ."""

    wall_s: float = 0.0

    def now_ms(self) -> int:
        return int((self.now_s + self.wall_s) * 1_000)


class StallingStore(CrashingStore):
    """Each of the first `stalls` uploads is followed by a pause, by either clock."""

    def __init__(self, inner: ObjectStore, clock: SplitClock, stalls: int, *, s: float = 0.0, wall_s: float = 0.0):
        super().__init__(inner, NEVER, after=False)
        self._clock = clock
        self._stalls = stalls
        self._pause = s, wall_s

    async def _hold_up(self, number: int) -> None:
        if number < self._stalls:
            self._clock.now_s += self._pause[0]
            self._clock.wall_s += self._pause[1]


def two_segments() -> list[EncodedSegment]:
    """Of one run."""
    parts = ({0: records_at(0, range(5))}, {1: records_at(1, range(4))})
    return [encoded(stored(part), digit * 32, 0) for part, digit in zip(parts, "ab", strict=True)]


def with_both(latest: ShardManifest, added: Sequence[TopicSegment]) -> ManifestChange:
    if PLACE.topic_id in latest.topics and latest.topics[PLACE.topic_id].partition(7).cold_end % 2:
        raise Conflict("no place for them")
    change = TopicChange(
        PLACE.topic, added=tuple(added), partitions={0: ColdState(cold_end=5), 1: ColdState(cold_end=4)}
    )
    return ManifestChange(ChangeKind.ARCHIVE, {PLACE.topic_id: change})


async def appended(store: ObjectStore, clock: ManualClock, log: ShardLog | None = None) -> ShardManifest:
    uploads = ShardUpload(store, Runtime(clock, SeededEntropy(0)), GRACE_S)
    return await uploads.append(log or log_of(store), two_segments(), with_both)


def named(manifest: ShardManifest) -> list[str]:
    return [segment.key for segment in manifest.topics[PLACE.topic_id].segments if segment.spans[0].partition < 7]


BEFORE = {each.segment.key for each in two_segments()}


async def named_and_there(store: ObjectStore, manifest: ShardManifest) -> bool:
    for segment in manifest.topics[PLACE.topic_id].segments:
        decode_topic_segment(segment, PLACE, (await store.get(segment.key)).data)
    return await manifest_of(store) == manifest


async def test_an_upload_in_time_is_named_as_it_is() -> None:
    store, clock = MemoryObjectStore(), SplitClock()
    manifest = await appended(StallingStore(store, clock, 3, s=GRACE_S / 6, wall_s=-GRACE_S), clock)
    assert set(named(manifest)) == BEFORE
    assert await named_and_there(store, manifest)


@pytest.mark.parametrize(("s", "wall_s"), [(GRACE_S, 0.0), (0.0, GRACE_S), (GRACE_S, -GRACE_S), (-0.0, GRACE_S / 1.9)])
async def test_a_worker_that_stalled_by_either_clock_uploads_again_under_new_names(s: float, wall_s: float) -> None:
    store, clock = MemoryObjectStore(), SplitClock()
    latest = 1  # the latest manifest is requested before the uploads
    manifest = await appended(StallingStore(store, clock, latest + 2, s=s, wall_s=wall_s), clock)
    assert BEFORE.isdisjoint(named(manifest))
    assert set(await keys(store, SEGMENTS)) > BEFORE  # orphans for the sweep
    for key in BEFORE:
        await store.delete(key)
    assert await named_and_there(store, manifest)


async def test_uploads_that_are_always_too_slow_end_with_an_error_and_no_manifest() -> None:
    store, clock = MemoryObjectStore(), SplitClock()
    with pytest.raises(Unavailable, match="half the grace"):
        await appended(StallingStore(store, clock, NEVER, s=GRACE_S), clock)
    assert (await manifest_of(store)).version == -1
    assert len(await keys(store, SEGMENTS)) == 2 * UPLOAD_ATTEMPTS_MAX


# ---- into the latest version


class OvertakenStore(CrashingStore):
    """Another worker appends a version before each of its creates."""

    def __init__(self, inner: ObjectStore, times: int, *, records: int = 2) -> None:
        super().__init__(inner, NEVER, after=False)
        self.times = times
        self._records = records
        self._end = 0
        self.puts = 0

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        self.puts += 1
        return await super().put(key, data, if_version=if_version)

    async def create(self, key: str, data: Body) -> str:
        if self.times:
            self.times -= 1
            await add(self._inner, {7: records_at(7, range(self._end, self._end + self._records))})
            self._end += self._records
        return await super().create(key, data)


async def test_versions_of_others_in_between_cost_no_other_upload() -> None:
    store = MemoryObjectStore()
    overtaken = OvertakenStore(store, 3)
    manifest = await appended(overtaken, ManualClock())
    assert (manifest.version, len(named(manifest))) == (3, 2)
    assert manifest.topics[PLACE.topic_id].partition(7).cold_end == 6
    assert overtaken.puts == 2
    assert await named_and_there(store, manifest)


async def test_an_upload_without_a_place_in_the_latest_version_is_a_conflict() -> None:
    store = MemoryObjectStore()
    with pytest.raises(Conflict, match="no place"):
        await appended(OvertakenStore(store, 1, records=3), ManualClock())
    assert named(await manifest_of(store)) == []


async def test_a_worker_that_is_overtaken_again_and_again_gives_up() -> None:
    with pytest.raises(Conflict, match="faster 8 times"):
        await appended(OvertakenStore(MemoryObjectStore(), NEVER), ManualClock())


async def test_an_upload_that_grew_old_while_others_were_faster_is_created_again() -> None:
    store, clock = MemoryObjectStore(), SplitClock()

    class SlowlyOvertaken(OvertakenStore):
        async def create(self, key: str, data: Body) -> str:
            clock.now_s += GRACE_S
            return await super().create(key, data)

    overtaken = SlowlyOvertaken(store, 1)
    manifest = await appended(overtaken, clock)
    assert overtaken.puts == 4
    assert BEFORE.isdisjoint(named(manifest))
    assert await named_and_there(store, manifest)


class SweepingStore(OvertakenStore):
    """Before each of its creates a sweep appends its version and deletes everything that no manifest names."""

    async def create(self, key: str, data: Body) -> str:
        if self.times:
            self.times -= 1
            log = log_of(self._inner)
            await log.append(ManifestChange(ChangeKind.SWEEP), await log.latest())
            for upload in await keys(self._inner, SEGMENTS):
                await self._inner.delete(upload)
        return await CrashingStore.create(self, key, data)


@pytest.mark.parametrize("known", [False, True], ids=["asked for the newest", "going by its own"])
@pytest.mark.parametrize("sweeps", [1, 2])
async def test_after_a_sweep_in_between_all_is_uploaded_again(known: bool, sweeps: int) -> None:
    store, clock = MemoryObjectStore(), ManualClock()
    sweeping = SweepingStore(store, 0)
    log = log_of(sweeping)
    manifest = await log.latest()
    if known:
        await log.append(ManifestChange(ChangeKind.COLLECT), manifest)
    sweeping.times = sweeps
    made = await appended(sweeping, clock, log)
    assert sweeping.puts == 2 * (1 + sweeps)
    assert await named_and_there(store, made)
