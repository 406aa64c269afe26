"""A compaction beside other workers: the archiver, retention, another compactor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.storage.archive_scenes import NEVER, CrashingStore
from tests.storage.upkeep.compaction_scenes import PLACE, RULES, Partition, puts, whole_pass, written

from tidelog.storage.bucket.verify import BucketVerification
from tidelog.storage.errors import Conflict, Corrupt
from tidelog.storage.manifests.manifest import ChangeKind
from tidelog.storage.manifests.manifest_codec import WHOLE_SEGMENTS_MAX
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.segments.segment_codec import encode_segment
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.upkeep.compact_plan import cleaned
from tidelog.storage.upkeep.retention import without_oldest


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return Partition(tmp_path / "spill")


async def test_records_that_arrive_during_a_pass_are_kept(partition: Partition) -> None:
    """The archiver appends a version between any two requests of a pass; the pass continues from it."""
    counting = CrashingStore(partition.store, NEVER, after=False)
    await partition.append(puts("ab"))
    await partition.append(puts("ac"))
    await whole_pass(partition.task(counting), partition.log(counting), RULES)
    for pause in range(counting.calls):
        store = MemoryObjectStore()
        fresh = Partition(partition.spill_folder, store)
        await fresh.append(puts("ab"))
        await fresh.append(puts("ac"))
        busy = _ArchivingStore(store, pause, fresh)
        manifest = await whole_pass(fresh.task(busy), fresh.log(busy), RULES)
        assert manifest is not None
        assert manifest.clean_end >= 4
        assert (await fresh.manifest()).cold_end == 5
        await fresh.check()


async def test_retention_may_take_segments_away_during_a_pass(partition: Partition) -> None:
    for keys in ("ab", "ac", "ad"):
        await partition.append(puts(keys))
    before = (await partition.manifest()).segments
    task, log = partition.task(), partition.log()
    pausing = _ExpiringStore(partition.store, partition)
    manifest = await whole_pass(partition.task(pausing), partition.log(pausing), RULES)
    assert manifest is not None
    assert manifest.log_start_offset == 2
    assert (await partition.records(begin_offset=2))["offset"].to_pylist() == [3, 4, 5]
    assert [segment.key in {garbage.key for garbage in manifest.garbage} for segment in before] == [True, True, False]
    assert task.due_at_ms(await log.latest(), RULES, partition.clock.now_ms()) is None


async def test_records_below_the_new_log_start_are_not_put_back(partition: Partition) -> None:
    for keys in ("ab", "ac", "ad"):
        await partition.append(puts(keys))
    expiring = _ExpiringStore(partition.store, partition)
    one_each = replace(RULES, segment_bytes=1)
    manifest = await whole_pass(partition.task(expiring), partition.log(expiring), one_each)
    assert manifest is not None
    assert manifest.log_start_offset == 2
    assert await partition.offsets() == [3, 4, 5]


async def test_a_segment_that_another_worker_replaced_is_a_conflict(partition: Partition) -> None:
    for keys in ("ab", "ac"):
        await partition.append(puts(keys))
    racing = _CompactingStore(partition.store, partition)
    with pytest.raises(Conflict):
        await whole_pass(partition.task(racing), partition.log(racing), RULES)
    await partition.check()


async def test_a_segment_that_is_missing_is_said_to_be(partition: Partition) -> None:
    await partition.append(puts("ab"))
    await partition.store.delete((await partition.manifest()).segments[0].key)
    with pytest.raises(Corrupt, match="names a segment that does not exist"):
        await partition.compact()


async def test_verify_finds_nothing_wrong_with_gaps_below_the_clean_end(partition: Partition) -> None:
    for keys in ("ab", "ac", "ad", "za"):
        await partition.append(puts(keys))
    await partition.compact(replace(RULES, segment_bytes=1))
    await partition.append(puts("a"))
    assert [segment.base_offset for segment in (await partition.manifest()).segments] == [1, 3, 5, 6, 8]
    assert [finding async for finding in BucketVerification(partition.store, deep=True).findings()] == []


async def test_when_tombstones_were_cleaned_over_survives_in_a_list_of_many_segments() -> None:
    """The version is stored as a difference."""
    store = MemoryObjectStore()
    log = ManifestLog(store, PLACE.topic, PLACE.topic_partition)
    encoded = encode_segment(PLACE.topic, PLACE.topic_partition, written(0, puts("a"), 0), "0" * 32).segment
    segments = tuple(
        replace(encoded, key=f"{encoded.key}{offset}", base_offset=offset, last_offset=offset)
        for offset in range(WHOLE_SEGMENTS_MAX + 1)
    )
    manifest = await log.append(replace(await log.latest(), segments=segments, cold_end=len(segments)))
    manifest = await log.append(cleaned(manifest, len(segments), 1_000, 5_000), ChangeKind.COMPACT)
    found = await ManifestLog(store, PLACE.topic, PLACE.topic_partition).latest()
    assert found.base_version is not None
    assert found == manifest
    assert found.cleanings[-1].end_offset == len(segments)


class _ArchivingStore(CrashingStore):
    """The archiver appends a segment before call `pause`."""

    def __init__(self, inner: MemoryObjectStore, pause: int, partition: Partition) -> None:
        super().__init__(inner, NEVER, after=False)
        self._pause = pause
        self._partition = partition

    async def _hold_up(self, number: int) -> None:
        if number == self._pause:
            await self._partition.append(puts("a", "late"))


class _ExpiringStore(CrashingStore):
    """Retention removes the first segment after the pass has begun to read."""

    def __init__(self, inner: MemoryObjectStore, partition: Partition) -> None:
        super().__init__(inner, NEVER, after=False)
        self._partition = partition

    async def _hold_up(self, number: int) -> None:
        if number == 5:
            log = self._partition.log()
            await log.append(without_oldest(await log.latest(), 1), ChangeKind.EXPIRE)


class _CompactingStore(CrashingStore):
    """Another worker makes a whole pass after this one has begun to read."""

    def __init__(self, inner: MemoryObjectStore, partition: Partition) -> None:
        super().__init__(inner, NEVER, after=False)
        self._partition = partition

    async def _hold_up(self, number: int) -> None:
        if number == 5:
            await whole_pass(self._partition.task(seed=1), self._partition.log(), RULES)
