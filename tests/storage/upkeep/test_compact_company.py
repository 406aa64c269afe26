"""A compaction beside other workers: the archiver, retention, another compactor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from msgspec import structs
from tests.storage.archive_scenes import NEVER, CrashingStore
from tests.storage.upkeep.compaction_scenes import RULES, Topic, puts, whole_pass
from tests.storage.upkeep.merge_scenes import PLACE, merger

from tidelog.storage.errors import Conflict, Corrupt
from tidelog.storage.manifests import topic_lists
from tidelog.storage.manifests.shard_manifest import ManifestChange, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.stores.memory import MemoryObjectStore


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return Topic(tmp_path / "spill")


async def test_records_that_arrive_during_a_pass_are_kept(topic: Topic) -> None:
    """The archiver appends a version between any two requests of a pass; the pass continues from it."""
    counting = CrashingStore(topic.store, NEVER, after=False)
    await topic.append(puts("ab"))
    await topic.append(puts("ac"))
    await whole_pass(topic.task(counting), topic.log(counting), RULES)
    for pause in range(counting.calls):
        store = MemoryObjectStore()
        fresh = Topic(topic.spill_folder, store)
        await fresh.append(puts("ab"))
        await fresh.append(puts("ac"))
        busy = _ArchivingStore(store, pause, fresh)
        manifest = await whole_pass(fresh.task(busy), fresh.log(busy), RULES)
        assert manifest is not None
        state = await fresh.partition()
        assert state.clean_end >= 4
        assert state.cold_end == 5
        await fresh.check()


async def test_a_rewrite_that_is_cut_within_a_partition_is_merged_and_compacted_again(topic: Topic) -> None:
    noise = Random(1).randbytes(5_000 << 12)
    writes = [(b"key-%05d" % (at % 4_000), noise[at << 12 : (at + 1) << 12]) for at in range(5_000)]
    await topic.append({0: writes, 1: puts("aa")})
    await topic.compact(replace(RULES, segment_bytes=6 << 20))
    assert [len(segment.spans) for segment in await topic.segments()] == [1, 2]
    await topic.append({0: puts("b"), 1: puts("b")})
    merging = merger(topic.store, topic.spill_folder)
    await topic.compact()
    assert await merging.run(PLACE, topic.log(), replace(RULES, segment_ms=1))
    assert len(await topic.segments()) == 1
    await topic.check()
    await topic.append({0: writes[:10]})
    await topic.compact()
    assert len(await topic.offsets()) == 4_001
    await topic.check()


async def test_retention_may_take_segments_away_during_a_pass(topic: Topic) -> None:
    for keys in ("ab", "ac", "ad"):
        await topic.append(puts(keys))
    before = await topic.segments()
    pausing = _ExpiringStore(topic.store, topic)
    manifest = await whole_pass(topic.task(pausing), topic.log(pausing), RULES)
    assert manifest is not None
    assert (await topic.partition()).log_start_offset == 2
    assert (await topic.records(begin_offset=2))["offset"].to_pylist() == [3, 4, 5]
    assert [segment.key in {garbage.key for garbage in manifest.garbage} for segment in before] == [True, True, False]
    assert topic.task().due_at_ms(await topic.seen(), RULES, topic.clock.now_ms()) is None


async def test_records_below_the_new_log_start_are_not_put_back(topic: Topic) -> None:
    for keys in ("ab", "ac", "ad"):
        await topic.append(puts(keys))
    expiring = _ExpiringStore(topic.store, topic)
    one_each = replace(RULES, segment_bytes=1)
    assert await whole_pass(topic.task(expiring), topic.log(expiring), one_each)
    assert (await topic.partition()).log_start_offset == 2
    assert await topic.offsets() == [3, 4, 5]


async def test_a_segment_that_another_worker_replaced_is_a_conflict(topic: Topic) -> None:
    for keys in ("ab", "ac"):
        await topic.append(puts(keys))
    racing = _CompactingStore(topic.store, topic)
    with pytest.raises(Conflict):
        await whole_pass(topic.task(racing), topic.log(racing), RULES)
    await topic.check()


async def test_a_segment_that_is_missing_is_said_to_be(topic: Topic) -> None:
    await topic.append(puts("ab"))
    await topic.store.delete((await topic.segments())[0].key)
    with pytest.raises(Corrupt, match="names a segment that does not exist"):
        await topic.compact()


async def test_when_tombstones_were_cleaned_over_survives_in_a_list(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The states of partitions are stored in a list, not in the version."""
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 2)
    for keys in ("ab", "ac", "ad"):
        await topic.append({0: puts(keys), 1: puts(keys)})
        await topic.compact()
    state = await topic.state()
    assert state.stored is not None
    assert [cleaning.end_offset for cleaning in state.partition(1).cleanings] == [6]
    assert state.partition(0) == state.partition(1)


class _ArchivingStore(CrashingStore):
    """The archiver appends a segment before call `pause`."""

    def __init__(self, inner: MemoryObjectStore, pause: int, topic: Topic) -> None:
        super().__init__(inner, NEVER, after=False)
        self._pause = pause
        self._topic = topic

    async def _hold_up(self, number: int) -> None:
        if number == self._pause:
            await self._topic.append(puts("a", "late"))


class _ExpiringStore(CrashingStore):
    """Retention removes the first segment after the pass has begun to read."""

    def __init__(self, inner: MemoryObjectStore, topic: Topic) -> None:
        super().__init__(inner, NEVER, after=False)
        self._topic = topic

    async def _hold_up(self, number: int) -> None:
        if number == 5:
            topic, (oldest, *_) = await self._topic.state(), await self._topic.segments()
            state = structs.replace(topic.partition(0), log_start_offset=oldest.spans[0].next_offset)
            change = TopicChange(PLACE.topic, removed=(oldest.key,), partitions={0: state})
            log = self._topic.log()
            await log.append(ManifestChange(ChangeKind.EXPIRE, {PLACE.topic_id: change}), await log.latest())


class _CompactingStore(CrashingStore):
    """Another worker makes a whole pass after this one has begun to read."""

    def __init__(self, inner: MemoryObjectStore, topic: Topic) -> None:
        super().__init__(inner, NEVER, after=False)
        self._topic = topic

    async def _hold_up(self, number: int) -> None:
        if number == 5:
            await whole_pass(self._topic.task(seed=1), self._topic.log(), RULES)
