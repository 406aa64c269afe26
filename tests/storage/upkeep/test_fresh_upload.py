"""A worker that stalled between upload and manifest uploads again, because a sweep may have deleted the first
upload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from tests.storage.archive_scenes import GRACE_S, NEVER, CrashingStore, ManualClock, keys
from tests.storage.record_tables import WEB, record_table

from tidelog.storage.errors import Conflict, Unavailable
from tidelog.storage.manifests.manifest import ChangeKind, Manifest, Segment
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import Body, ObjectStore
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.segments.segment_codec import EncodedSegment, decode_segment, encode_segment
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.upkeep.fresh_upload import UPLOAD_ATTEMPTS_MAX, FreshUpload

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
    return [
        encode_segment("web", WEB, record_table(range(5)), "a" * 32),
        encode_segment("web", WEB, record_table(range(5, 9)), "b" * 32),
    ]


async def appended(store: ObjectStore, clock: SplitClock) -> Manifest:
    log = ManifestLog(store, "web", WEB)
    await log.latest()
    fresh = FreshUpload(store, Runtime(clock, SeededEntropy(0)), GRACE_S)
    return await fresh.append(log, two_segments(), with_both, ChangeKind.ARCHIVE)


async def named_and_there(store: ObjectStore, manifest: Manifest) -> bool:
    for segment in manifest.segments:
        decode_segment(segment.key, (await store.get(segment.key)).data)
    return (await ManifestLog(store, "web", WEB).latest()) == manifest


async def test_an_upload_in_time_is_named_as_it_is() -> None:
    store, clock = MemoryObjectStore(), SplitClock()
    manifest = await appended(StallingStore(store, clock, 3, s=GRACE_S / 6, wall_s=-GRACE_S), clock)
    assert [segment.key for segment in manifest.segments] == [encoded.segment.key for encoded in two_segments()]
    assert await named_and_there(store, manifest)


@pytest.mark.parametrize(("s", "wall_s"), [(GRACE_S, 0.0), (0.0, GRACE_S), (GRACE_S, -GRACE_S), (-0.0, GRACE_S / 1.9)])
async def test_a_worker_that_stalled_by_either_clock_uploads_again_under_new_names(s: float, wall_s: float) -> None:
    store, clock = MemoryObjectStore(), SplitClock()
    latest = 1  # the latest manifest is requested before the uploads
    manifest = await appended(StallingStore(store, clock, latest + 2, s=s, wall_s=wall_s), clock)
    before = {encoded.segment.key for encoded in two_segments()}
    assert before.isdisjoint(segment.key for segment in manifest.segments)
    assert before < set(await keys(store, SEGMENTS))  # orphans for the sweep
    for key in before:
        await store.delete(key)
    assert await named_and_there(store, manifest)


async def test_uploads_that_are_always_too_slow_end_with_an_error_and_no_manifest() -> None:
    store, clock = MemoryObjectStore(), SplitClock()
    with pytest.raises(Unavailable, match="half the grace"):
        await appended(StallingStore(store, clock, NEVER, s=GRACE_S), clock)
    assert (await ManifestLog(store, "web", WEB).latest()).version == -1
    assert len(await keys(store, SEGMENTS)) == 2 * UPLOAD_ATTEMPTS_MAX


# ---- into the latest version


def with_both(latest: Manifest, added: Sequence[Segment]) -> Manifest:
    if latest.log_start_offset:
        raise Conflict("no place for them")
    return replace(latest, cold_end=max(9, latest.cold_end), segments=tuple(added))


class OvertakenStore(CrashingStore):
    """Another worker appends a version before each of its creates."""

    def __init__(self, inner: ObjectStore, times: int, *, log_start_offset: int = 0) -> None:
        super().__init__(inner, NEVER, after=False)
        self.times = times
        self._log_start_offset = log_start_offset
        self.puts = 0

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        self.puts += 1
        return await super().put(key, data, if_version=if_version)

    async def create(self, key: str, data: Body) -> str:
        if self.times:
            self.times -= 1
            log = ManifestLog(self._inner, "web", WEB)
            latest = await log.latest()
            moved = replace(latest, cold_end=latest.cold_end + 10, log_start_offset=self._log_start_offset)
            await log.append(moved)
        return await super().create(key, data)


async def put_into_latest(store: ObjectStore, clock: ManualClock) -> Manifest:
    fresh = FreshUpload(store, Runtime(clock, SeededEntropy(0)), GRACE_S)
    log = ManifestLog(store, "web", WEB)
    return await fresh.append(log, two_segments(), with_both, ChangeKind.MERGE)


async def test_versions_of_others_in_between_cost_no_other_upload() -> None:
    store = MemoryObjectStore()
    overtaken = OvertakenStore(store, 3)
    manifest = await put_into_latest(overtaken, ManualClock())
    assert (manifest.version, manifest.cold_end, len(manifest.segments)) == (3, 30, 2)
    assert overtaken.puts == 2
    assert await named_and_there(store, manifest)


async def test_an_upload_without_a_place_in_the_latest_version_is_a_conflict() -> None:
    store = MemoryObjectStore()
    with pytest.raises(Conflict, match="no place"):
        await put_into_latest(OvertakenStore(store, 1, log_start_offset=3), ManualClock())
    assert (await ManifestLog(store, "web", WEB).latest()).segments == ()


async def test_a_worker_that_is_overtaken_again_and_again_gives_up() -> None:
    with pytest.raises(Conflict, match="faster 8 times"):
        await put_into_latest(OvertakenStore(MemoryObjectStore(), NEVER), ManualClock())


async def test_an_upload_that_grew_old_while_others_were_faster_is_created_again() -> None:
    store, clock = MemoryObjectStore(), SplitClock()

    class SlowlyOvertaken(OvertakenStore):
        async def create(self, key: str, data: Body) -> str:
            clock.now_s += GRACE_S
            return await super().create(key, data)

    overtaken = SlowlyOvertaken(store, 1)
    manifest = await put_into_latest(overtaken, clock)
    assert overtaken.puts == 4
    assert {encoded.segment.key for encoded in two_segments()}.isdisjoint(s.key for s in manifest.segments)
    assert await named_and_there(store, manifest)


class SweepingStore(OvertakenStore):
    """Before each of its creates a sweep appends its version and deletes everything that no manifest names."""

    async def create(self, key: str, data: Body) -> str:
        if self.times:
            self.times -= 1
            log = ManifestLog(self._inner, "web", WEB)
            await log.append(await log.latest(), ChangeKind.SWEEP)
            for upload in await keys(self._inner, SEGMENTS):
                if "/partition=" in upload:
                    await self._inner.delete(upload)
        return await CrashingStore.create(self, key, data)


@pytest.mark.parametrize("known", [False, True], ids=["asked for the newest", "going by its own"])
@pytest.mark.parametrize("sweeps", [1, 2])
async def test_after_a_sweep_in_between_all_is_uploaded_again(known: bool, sweeps: int) -> None:
    store, clock = MemoryObjectStore(), ManualClock()
    sweeping = SweepingStore(store, 0)
    log = ManifestLog(sweeping, "web", WEB)
    manifest = await log.latest()
    if known:
        await log.append(manifest)
    sweeping.times = sweeps
    fresh = FreshUpload(sweeping, Runtime(clock, SeededEntropy(0)), GRACE_S)
    appended = await fresh.append(log, two_segments(), with_both, ChangeKind.ARCHIVE)
    assert sweeping.puts == 2 * (1 + sweeps)
    assert await named_and_there(store, appended)
