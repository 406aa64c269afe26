"""A copy of a bucket that is being written holds all records acknowledged before it began, and is a sound bucket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from tests.storage.archive_scenes import (
    NEVER,
    Crash,
    CrashingStore,
    GatedStore,
    Scene,
    check_logs,
    keys,
    manifest_of,
)
from tests.storage.copy_scenes import (
    JOURNAL_KEYS,
    Alive,
    Source,
    copy_of,
    expect_copy,
    expect_sound,
    is_marked_whole,
    source_bucket,
)
from tests.storage.known_topics import SaidTopics, known
from tests.storage.record_tables import SHOP, WEB
from tests.storage.sweep_scenes import orphan_in

from tidelog.storage.bucket.copy.bucket_copy import BucketCopy, is_settled
from tidelog.storage.bucket.copy.transfer import CopyReport, Transfer
from tidelog.storage.errors import Conflict, Unavailable
from tidelog.storage.layout import COPY_KEY, topic_prefix, wal_prefix
from tidelog.storage.manifests import topic_lists
from tidelog.storage.manifests.shard_manifest import ManifestChange
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.object_store import ByteRange, ObjectInfo, ObjectStore, StoredObject
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore


async def test_a_copy_holds_all_and_is_sound() -> None:
    store, alive = await source_bucket()
    target = MemoryObjectStore()
    report = await copy_of(store, target, alive).run()
    assert report.whole
    assert await keys(target, "meta/") == JOURNAL_KEYS
    await check_logs(alive.scene, target)
    await expect_copy(target, dict(alive.scene.next_offsets), alive.scene)


async def test_an_empty_bucket_can_be_copied() -> None:
    scene = Scene(Source())
    target = MemoryObjectStore()
    assert (await copy_of(scene.store, target, Alive(scene.store, scene)).run()).copied == 0
    assert await keys(target, "") == [COPY_KEY]


@pytest.mark.parametrize("deletes", [False, True])
async def test_the_source_may_continue_at_any_request_of_a_copy(deletes: bool) -> None:
    """The source appends and archives between any two requests, immediately or, with deletion, over twice the smallest
    grace."""
    pause, reached = int(deletes), True
    while reached:
        store, alive = await source_bucket()
        target = MemoryObjectStore()
        acknowledged: dict[object, int] = dict(alive.scene.next_offsets)
        gated = GatedStore(store, pause)
        copying = asyncio.create_task(copy_of(gated, target, alive).run())
        waiting = asyncio.create_task(gated.reached.wait())
        await asyncio.wait([copying, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        reached = gated.reached.is_set()
        await alive.goes_on(deletes=deletes)
        await alive.goes_on(deletes=deletes)
        gated.gate.set()
        await copying
        await expect_copy(target, acknowledged, alive.scene)
        pause += 2
    assert pause > 20


class Busy(CrashingStore):
    """Changes the bucket before each request, up to a number of requests."""

    def __init__(self, inner: ObjectStore, act: Callable[[], Awaitable[None]], times: int) -> None:
        super().__init__(inner, NEVER, after=False)
        self._act = act
        self._times = times

    async def _hold_up(self, number: int) -> None:
        if number < self._times:
            await self._act()


async def test_a_source_that_continues_before_every_request_is_copied_once_it_slows_down() -> None:
    store, alive = await source_bucket()
    target = MemoryObjectStore()
    acknowledged: dict[object, int] = dict(alive.scene.next_offsets)
    await copy_of(Busy(store, alive.goes_on, 12), target, alive).run()
    await expect_copy(target, acknowledged, alive.scene)


async def test_a_source_that_deletes_faster_than_it_is_copied_is_told_of_and_the_copy_is_not_whole() -> None:
    store, alive = await source_bucket()
    target = MemoryObjectStore()

    class Hasty(CrashingStore):
        """Archives and deletes before each listing of the log."""

        async def list(self, prefix: str, *, start_after: str = "", limit: int = 1_000) -> Sequence[ObjectInfo]:
            if prefix == f"{wal_prefix(0)}0":
                await alive.goes_on()
            return await super().list(prefix, start_after=start_after, limit=limit)

    with pytest.raises(Unavailable, match="grace"):
        await copy_of(Hasty(store, NEVER, after=False), target, alive).run()
    assert not await is_marked_whole(target)


# ---- again


async def test_a_crash_between_any_two_requests_is_made_good_by_running_again() -> None:
    for side in ("source", "target"):
        store, alive = await source_bucket()
        counting = CrashingStore(store if side == "source" else MemoryObjectStore(), NEVER, after=False)
        both = (counting, MemoryObjectStore()) if side == "source" else (store, counting)
        await copy_of(*both, alive).run()
        for survived in range(counting.calls):
            store, alive = await source_bucket()
            target = MemoryObjectStore()
            ends: Sequence[ObjectStore] = (
                (CrashingStore(store, survived, after=True), target)
                if side == "source"
                else (store, CrashingStore(target, survived, after=True))
            )
            with pytest.raises(Crash):
                await copy_of(ends[0], ends[1], alive).run()
            await alive.goes_on()
            acknowledged: dict[object, int] = dict(alive.scene.next_offsets)
            await copy_of(store, target, alive).run()
            await expect_copy(target, acknowledged, alive.scene)


async def test_a_second_run_brings_what_is_new_and_takes_away_what_is_gone() -> None:
    store, alive = await source_bucket()
    target = MemoryObjectStore()
    first = await copy_of(store, target, alive).run()
    unchanged = await copy_of(store, target, alive).run()
    assert (unchanged.copied, unchanged.deleted) == (0, 0)
    assert unchanged.skipped_bytes >= first.copied_bytes
    await alive.goes_on()
    later = await copy_of(store, target, alive).run()
    assert 0 < later.copied_bytes < first.copied_bytes + later.skipped_bytes
    assert later.deleted > 0, "entries that are below the floor by now"
    await expect_sound(target)
    await check_logs(alive.scene, target)


async def test_garbage_and_orphans_are_left_behind() -> None:
    store, alive = await source_bucket()
    await orphan_in(store)
    await store.put("_staging/job/x", b"x")
    target = MemoryObjectStore()
    await copy_of(store, target, alive).run()
    await expect_sound(target)
    assert await keys(target, "_staging/") == []


async def drop_web(store: ObjectStore, alive: Alive) -> None:
    """What brokers do with a deleted topic: it leaves the shard, and its segments go."""
    segments = await keys(store, topic_prefix("web", WEB.topic_id))
    dropped = ManifestChange(ChangeKind.DELETE_TOPIC, dropped=(WEB.topic_id,))
    await alive.scene.log.change((WEB.topic_id,), lambda manifest: dropped)
    await store.delete_many(segments)


async def test_a_topic_that_was_deleted_since_goes_from_the_copy() -> None:
    store, alive = await source_bucket()
    target = MemoryObjectStore()
    await copy_of(store, target, alive).run()
    await drop_web(store, alive)
    left = SaidTopics(known("shop", SHOP.topic_id, 0), gone={WEB.topic_id})
    assert (await copy_of(store, target, alive, topics=left).run()).whole
    assert await keys(target, topic_prefix("web", WEB.topic_id)) == []
    assert await keys(target, topic_prefix("shop", SHOP.topic_id)) != []


async def test_a_topic_that_is_deleted_meanwhile_holds_nothing_up() -> None:
    store, alive = await source_bucket()
    said = SaidTopics()

    class Deleted(CrashingStore):
        """A segment is gone when it is read, because its topic is being deleted."""

        async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
            if key.startswith("topics/web/") and not said.gone:
                said.present, said.gone = known("shop", SHOP.topic_id, 0), {WEB.topic_id}
                await drop_web(store, alive)
            return await super().get(key, byte_range)

    target = MemoryObjectStore()
    assert (await copy_of(Deleted(store, NEVER, after=False), target, alive, topics=said).run()).whole
    assert await keys(target, "topics/web/") == []


# ---- refusals


async def test_only_an_empty_bucket_or_an_earlier_copy_of_the_same_cluster_is_written_to() -> None:
    store, alive = await source_bucket()
    target = MemoryObjectStore()
    await target.put("something", b"else")
    with pytest.raises(Conflict, match="other objects"):
        await copy_of(store, target, alive).run()
    await target.delete("something")
    await copy_of(store, target, alive).run()
    with pytest.raises(Conflict, match="copy of cluster one"):
        await copy_of(store, target, alive, cluster_id="two").run()
    with pytest.raises(Conflict, match="itself"):
        await copy_of(store, store, alive).run()


@pytest.mark.parametrize("where", ["shard 0", "manifest of shard 0", "journal"])
async def test_a_copy_on_which_a_broker_runs_is_not_written_to(where: str) -> None:
    store, alive = await source_bucket()
    target = MemoryObjectStore()
    await copy_of(store, target, alive).run()
    on_copy = Scene(target, alive.scene.clock, next_seq=alive.scene.next_seq)
    if where == "journal":
        await target.create(f"meta/{len(JOURNAL_KEYS):020d}.json", b"{}")
    elif where == "shard 0":
        await on_copy.begin_epoch(3)
    else:
        await on_copy.log.change((), lambda manifest: ManifestChange(ChangeKind.SWEEP))
    before = await keys(target, "")
    with pytest.raises(Conflict, match=f"{where} had"):
        await copy_of(store, target, alive).run()
    assert await keys(target, "") == before


async def test_a_log_that_went_another_way_is_not_mixed_with_the_sources() -> None:
    """The mark is of an interrupted run, so only the entries show the difference."""
    store, alive = await source_bucket()
    target = MemoryObjectStore()
    await copy_of(store, target, alive).run()
    key = alive.scene.wal.key(alive.scene.next_seq - 1)
    data = bytearray((await target.get(key)).data)
    data[40] ^= 1
    await target.put(key, data)
    with pytest.raises(Conflict, match="another wal/"):
        await copy_of(store, target, alive).run()


async def test_a_manifest_that_went_another_way_is_not_mixed_with_the_sources() -> None:
    store, alive = await source_bucket()
    target = MemoryObjectStore()
    await copy_of(store, target, alive).run()
    (*_, newest) = [version async for version in alive.scene.log.versions()]
    await target.delete(alive.scene.log.key(newest))
    await Scene(target).log.change((), lambda manifest: ManifestChange(ChangeKind.SWEEP))
    with pytest.raises(Conflict, match="another manifest of shard 0"):
        await copy_of(store, target, alive).run()


async def test_a_damaged_segment_is_named_and_all_else_is_copied() -> None:
    store, alive = await source_bucket()
    segment = next(iter((await manifest_of(store)).topics[WEB.topic_id].segments))
    data = bytearray((await store.get(segment.key)).data)
    data[40] ^= 1
    await store.put(segment.key, data)
    target = MemoryObjectStore()
    report: CopyReport = await copy_of(store, target, alive).run()
    assert ([finding.key for finding in report.damaged], report.whole) == ([segment.key], False)
    assert (await target.get(segment.key)).data == data
    assert not await is_marked_whole(target)


async def test_a_lost_segment_is_named_and_all_else_is_copied() -> None:
    store, alive = await source_bucket()
    segment = next(iter((await manifest_of(store)).topics[WEB.topic_id].segments))
    await store.delete(segment.key)
    target = MemoryObjectStore()
    report = await copy_of(store, target, alive).run()
    assert ([finding.key for finding in report.damaged], report.whole) == ([segment.key], False)
    assert set(await keys(store, "topics/")) == set(await keys(target, "topics/"))


@pytest.mark.parametrize("lost", [False, True])
async def test_where_a_list_is_damaged_all_segments_of_its_topic_are_copied(
    lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 0)
    store, alive = await source_bucket()
    ref = (await manifest_of(store)).topics[WEB.topic_id].stored
    assert ref is not None
    segments = await keys(store, "topics/")
    await (store.delete(ref.key) if lost else store.put(ref.key, b"?"))
    target = MemoryObjectStore()
    report = await copy_of(store, target, alive).run()
    assert ({finding.key for finding in report.damaged}, report.whole) == ({ref.key}, False)
    assert await keys(target, "topics/") == segments


async def test_a_topic_the_journal_never_heard_of_is_named_for_no_broker_serves_it() -> None:
    store, alive = await source_bucket()
    only_shop = SaidTopics(known("shop", SHOP.topic_id, 0))
    report = await copy_of(store, MemoryObjectStore(), alive, topics=only_shop).run()
    assert ([finding.key for finding in report.damaged], report.whole) == ([topic_prefix("web", WEB.topic_id)], False)


@pytest.mark.parametrize(
    ("took_s", "copied", "before", "settled"),
    [
        (14, 1_000, None, True),
        (16, 1_000, None, False),
        (16, 0, None, True),
        (16, 500, 1_000, False),
        (16, 501, 1_000, True),
    ],
)
def test_rounds_end_when_another_would_not_leave_less(
    took_s: float, copied: int, before: int | None, settled: bool
) -> None:
    assert is_settled(took_s, 60.0, copied, before) is settled


async def test_memory_and_requests_are_bounded() -> None:
    store, alive = await source_bucket()
    for _ in range(20):
        await alive.goes_on()
    under_way = most = 0

    class Watched(CrashingStore):
        async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
            nonlocal under_way, most
            counts = key.endswith(".parquet") and byte_range is None
            under_way += counts
            most = max(most, under_way)
            await asyncio.sleep(0)  # lets other tasks run; no time passes
            try:
                return await super().get(key, byte_range)
            finally:
                under_way -= counts

    runtime = Runtime(alive.scene.clock, SeededEntropy(5))
    transfer = Transfer(Watched(store, NEVER, after=False), MemoryObjectStore(), at_once=3, memory_bytes=4_000)
    assert (await BucketCopy(transfer, SaidTopics(), "one", runtime).run()).whole
    assert 2 <= most <= 3
