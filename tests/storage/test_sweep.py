"""The sweep finds objects that nothing uses. No clock, crash or stalled worker makes it delete a live one."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import pytest
from tests.storage.archive_scenes import (
    NEVER,
    Crash,
    CrashingStore,
    GatedStore,
    ManualClock,
    archiver_of,
    check_logs,
    keys,
    manifest_of,
    pass_and_collection,
    small_scene,
)
from tests.storage.known_topics import SaidTopics, known, scene_topics
from tests.storage.record_tables import SHOP, WEB, WEB_1
from tests.storage.sweep_scenes import DAY_S, NO_GRACE, Bucket, orphan_in, rewrite, sweep_of, swept

from tidelog.storage.bucket.sweep.bucket_sweep import DAY_MS, BucketSweep, SweepSettings
from tidelog.storage.bucket.sweep.sweep_report import Reason
from tidelog.storage.bucket.verify.verification import BucketVerification
from tidelog.storage.errors import Conflict
from tidelog.storage.layout import (
    STAGING_PREFIX,
    list_key,
    lists_prefix,
    manifests_prefix,
    shard_segment_key,
    staging_prefix,
    topic_prefix,
)
from tidelog.storage.manifests import topic_lists
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind, ColdState, SegmentSpan, TopicSegment
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.storage.stores.retrying import RetryingObjectStore
from tidelog.storage.stores.wrapping import Verb


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


async def test_a_tidy_bucket_is_left_as_it_is(bucket: Bucket) -> None:
    scene = await bucket.archived()
    bucket.clock.now_s += 10 * DAY_S
    before = await keys(bucket.store, "")
    assert await swept(bucket.store, NO_GRACE) == []
    assert await keys(bucket.store, "") == before
    await check_logs(scene, bucket.store)


async def test_a_dry_run_tells_and_deletes_nothing(bucket: Bucket) -> None:
    await bucket.archived()
    key = await bucket.orphan()
    bucket.clock.now_s += DAY_S
    before = await keys(bucket.store, "")
    (stray,) = await swept(bucket.store, SweepSettings())
    assert (stray.key, stray.reason, stray.age_ms, stray.deleted) == (key, Reason.UPLOAD, DAY_MS, False)
    assert await keys(bucket.store, "") == before


async def test_an_upload_goes_a_day_after_it_was_made(bucket: Bucket) -> None:
    scene = await bucket.archived()
    old = await bucket.orphan()
    bucket.clock.now_s += 1
    young = await bucket.orphan(segment_id="ef")
    bucket.clock.now_s += DAY_S - 1
    sweep = sweep_of(bucket.store, SweepSettings(delete=True))
    assert [stray.key async for stray in sweep.strays()] == [old]
    left = await keys(bucket.store, "topics/web/")
    assert (old in left, young in left) == (False, True)
    report = sweep.report
    assert (report.deleted, report.young, report.found) == (1, 1, {"upload": 1})
    assert report.deleted_bytes == report.found_bytes["upload"] > 0
    await check_logs(scene, bucket.store)


async def test_objects_of_a_topic_that_was_deleted_go(bucket: Bucket) -> None:
    scene = await bucket.archived()
    gone = SaidTopics(known("shop", SHOP.topic_id, 0), gone={WEB.topic_id})
    assert await swept(bucket.store, SweepSettings(delete=True), gone) == []
    bucket.clock.now_s += DAY_S
    orphan = await bucket.orphan()
    stranger = f"{topic_prefix('web', WEB.topic_id)}_SUCCESS"
    await bucket.store.put(stranger, b"")
    bucket.clock.now_s += DAY_S
    strays = await swept(bucket.store, SweepSettings(delete=True), gone)
    assert {(stray.key, stray.reason) for stray in strays} == {
        (key, Reason.DELETED_TOPIC) for key in (orphan, stranger)
    }
    (named,) = await keys(bucket.store, topic_prefix("web", WEB.topic_id))
    await scene.log.change((), lambda manifest: ManifestChange(ChangeKind.DELETE_TOPIC, dropped=(WEB.topic_id,)))
    assert await swept(bucket.store, NO_GRACE, gone) == [], "a manifest names it as garbage, for its collector"
    collected = ManifestChange(ChangeKind.COLLECT, collected=frozenset({named}))
    await scene.log.change((), lambda manifest: collected)
    assert [stray.key for stray in await swept(bucket.store, NO_GRACE, gone)] == [named]
    del scene.next_offsets[WEB], scene.next_offsets[WEB_1]
    await check_logs(scene, bucket.store)


async def test_a_topic_the_journal_never_heard_of_is_left_alone(bucket: Bucket) -> None:
    await bucket.archived()
    await bucket.orphan()
    sweep = sweep_of(bucket.store, NO_GRACE, SaidTopics(known("shop", SHOP.topic_id, 0)))
    assert [stray async for stray in sweep.strays()] == []
    assert list(sweep.report.unjudged) == [topic_prefix("web", WEB.topic_id)]


async def test_a_topic_that_is_being_removed_is_its_removers(bucket: Bucket) -> None:
    await bucket.archived()
    await bucket.orphan()
    topics = scene_topics() | known("web", WEB.topic_id, 0, 0, removing=True)
    assert await swept(bucket.store, NO_GRACE, SaidTopics(topics)) == []


async def test_segments_whose_manifest_was_lost_are_left_alone(bucket: Bucket) -> None:
    scene = await bucket.archived()
    await scene.append({WEB: 2, SHOP: 2}, epoch=2)
    await archiver_of(scene, bucket.store, seed=1).run_once()
    segments = (await manifest_of(bucket.store)).topics[WEB.topic_id].segments
    for version in (1, 0):
        await scene.log.delete(version)
        sweep = sweep_of(bucket.store, NO_GRACE)
        assert [stray async for stray in sweep.strays()] == []
        assert len(sweep.report.unjudged) == 2, "it names a segment of each topic"
    assert {segment.key for segment in segments} <= set(await keys(bucket.store, "topics/web/"))


async def test_an_upload_that_cannot_be_read_is_left_alone(bucket: Bucket) -> None:
    await bucket.archived()
    key = await bucket.orphan()
    await bucket.store.put(key, b"?")
    sweep = sweep_of(bucket.store, NO_GRACE)
    assert [stray async for stray in sweep.strays()] == []
    assert list(sweep.report.unjudged) == [key]


async def test_where_a_manifest_cannot_be_read_nothing_is_judged(bucket: Bucket) -> None:
    await bucket.archived()
    await bucket.orphan()
    key = f"{manifests_prefix(0)}{0:020d}.json"
    await bucket.store.put(key, b"?")
    sweep = sweep_of(bucket.store, NO_GRACE)
    assert [stray async for stray in sweep.strays()] == []
    assert list(sweep.report.unjudged) == [key]


async def test_lists_that_no_version_names_go(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker writes a list and loses the race for the version; a list of a lost version is left alone."""
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 0)
    scene = await bucket.archived()
    (named, _) = await keys(bucket.store, lists_prefix(0))
    orphan = list_key(0, named.split("/")[-1].split("-")[0], "ef" * 16)
    await bucket.store.create(orphan, (await bucket.store.get(named)).data)
    assert [(stray.key, stray.reason) for stray in await swept(bucket.store, NO_GRACE)] == [(orphan, Reason.UPLOAD)]
    await check_logs(scene, bucket.store)
    for version in (0, 1):
        await scene.log.delete(version)
    assert await swept(bucket.store, NO_GRACE) == []
    assert named in await keys(bucket.store, lists_prefix(0))


async def test_orphans_of_several_topics_cost_one_version_and_one_delete_each(bucket: Bucket) -> None:
    await bucket.archived()
    for number in range(20):
        await bucket.orphan(f"{number:02x}")
    counting = CountingObjectStore(bucket.store)
    assert len(await swept(counting, NO_GRACE)) == 20
    usage = counting.usage()
    assert usage.requests(Verb.CREATE) == 1
    assert usage.requests(Verb.DELETE) == 2, "of the orphans, and of the probe"


def listed_segment(number: int) -> TopicSegment:
    key = shard_segment_key("web", WEB.topic_id, 0, f"{number:032x}")
    return TopicSegment(key, number, 0, 0, "", 1, 1, 1, (SegmentSpan(0, number, number, 1, 1),))


async def test_a_hundred_thousand_segments_cost_the_pages_of_their_listing(bucket: Bucket) -> None:
    segments = tuple(listed_segment(number) for number in range(100_000))
    for segment in segments:
        await bucket.store.create(segment.key, b"")
    log = ShardLog(bucket.store, 0, Runtime())
    await log.latest()
    state = ColdState(cold_end=segments[-1].spans[-1].next_offset)
    await log.append(ManifestChange(ChangeKind.ARCHIVE, {WEB.topic_id: TopicChange("web", (), segments, {0: state})}))
    counting = CountingObjectStore(bucket.store)
    assert await swept(counting, NO_GRACE) == []
    usage = counting.usage()
    assert usage.requests(Verb.LIST) <= 110
    assert usage.requests() - usage.requests(Verb.LIST) == 2, "the version, and the list that it names"


async def test_a_staging_area_goes_as_a_whole_and_only_once_its_job_is_quiet(bucket: Bucket) -> None:
    for job in ("dead", "alive"):
        await bucket.store.put(f"{staging_prefix(job)}task-0", b"x" * 10)
    bucket.clock.now_s += DAY_S
    await bucket.store.put(f"{staging_prefix('alive')}task-1", b"x")
    strays = await swept(bucket.store, SweepSettings(delete=True))
    assert [(stray.key, stray.reason) for stray in strays] == [(f"{staging_prefix('dead')}task-0", Reason.STAGING)]
    assert await keys(bucket.store, STAGING_PREFIX) == [f"{staging_prefix('alive')}task-{n}" for n in (0, 1)]


# ---- crashes, stalls, rivals


async def requests_of_a_sweep() -> int:
    bucket = Bucket()
    await bucket.archived()
    await bucket.orphan()
    counting = CrashingStore(bucket.store, NEVER, after=False)
    await swept(counting, NO_GRACE)
    return counting.calls


async def test_a_crash_between_any_two_requests_loses_nothing_and_the_next_sweep_ends_it() -> None:
    requests = await requests_of_a_sweep()
    assert requests > 10
    for survived in range(requests):
        for after in (False, True):
            bucket = Bucket()
            scene = await bucket.archived()
            key = await bucket.orphan()
            with pytest.raises(Crash):
                await swept(CrashingStore(bucket.store, survived, after=after), NO_GRACE)
            await check_logs(scene, bucket.store)
            await swept(bucket.store, NO_GRACE)
            await check_logs(scene, bucket.store)
            assert key not in await keys(bucket.store, "topics/")
            assert await keys(bucket.store, STAGING_PREFIX) == []
            assert [finding async for finding in BucketVerification(bucket.store, deep=True).findings()] == []


async def test_a_worker_that_stalls_at_any_request_names_nothing_that_a_sweep_has_deleted() -> None:
    """One or two sweeps without any grace run between any two requests of an archiver's pass. Its clocks stand still,
    so only the manifest protects its objects."""
    scene_store = Bucket()
    counting = CrashingStore(scene_store.store, NEVER, after=False)
    await pass_and_collection(await small_scene(scene_store.store), counting)
    for pause in range(counting.calls):
        bucket = Bucket()
        scene = await bucket.archived()
        await scene.append({WEB: 2, SHOP: 1, WEB_1: 1}, epoch=2)
        gated = GatedStore(bucket.store, pause)
        stalled = asyncio.create_task(archiver_of(scene, gated, seed=1).run_once())
        waiting = asyncio.create_task(gated.reached.wait())
        await asyncio.wait([stalled, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        rival = archiver_of(scene, bucket.store, seed=2)
        if pause % 2:
            await rival.run_once()  # the stalled worker's upload is then below the cold end, and an orphan
        await swept(bucket.store, NO_GRACE)
        await check_logs(scene, bucket.store)
        gated.gate.set()
        with suppress(Conflict):  # like the archive loop, which asks again
            await stalled
        await check_logs(scene, bucket.store)
        await rival.run_once()
        await check_logs(scene, bucket.store)


async def test_a_merge_that_stalls_between_upload_and_manifest_names_nothing_that_was_deleted() -> None:
    """The merged segment holds archived records, and nothing else writes there. Its clocks stand still, so only the
    version that the sweep appends can stop it."""
    pause, reached, deleted = 0, True, 0
    while reached:
        bucket = Bucket()
        scene = await bucket.archived()
        gated = GatedStore(bucket.store, pause)
        merging = asyncio.create_task(rewrite(scene, gated))
        waiting = asyncio.create_task(gated.reached.wait())
        await asyncio.wait([merging, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        reached = gated.reached.is_set()
        deleted += len(await swept(bucket.store, NO_GRACE))
        gated.gate.set()
        await merging
        await check_logs(scene, bucket.store)
        pause += 1
    assert deleted > 0


async def test_two_sweeps_at_once_delete_what_one_would() -> None:
    for pause in range(await requests_of_a_sweep()):
        bucket = Bucket()
        scene = await bucket.archived()
        key = await bucket.orphan()
        gated = GatedStore(bucket.store, pause)
        bucket.clock.now_s += DAY_S
        first = asyncio.create_task(swept(gated, SweepSettings(delete=True)))
        await gated.reached.wait()
        other = sweep_of(bucket.store, SweepSettings(delete=True), seed=10)
        assert [stray.key async for stray in other.strays()] in ([key], [])
        gated.gate.set()
        await first
        assert key not in await keys(bucket.store, "topics/")
        await check_logs(scene, bucket.store)


async def test_a_rival_that_appends_all_the_time_makes_the_sweep_give_up_not_err(bucket: Bucket) -> None:
    scene = await bucket.archived()
    key = await bucket.orphan()

    turn = asyncio.Lock()

    class Rival(CrashingStore):
        """Archives something between each look of the sweep and its append."""

        async def _hold_up(self, number: int) -> None:
            async with turn:
                await scene.append({WEB: 1}, epoch=2)
                await archiver_of(scene, bucket.store, seed=100 + number).run_once()

    assert await swept(Rival(bucket.store, NEVER, after=False), NO_GRACE) == []
    assert key in await keys(bucket.store, "topics/")
    assert len(await keys(bucket.store, manifests_prefix(0))) > 8
    await check_logs(scene, bucket.store)


# ---- clocks


@pytest.mark.parametrize("wrong_s", [-2 * DAY_S, 2 * DAY_S])
async def test_on_a_directory_the_clock_of_this_process_is_not_asked(tmp_path: Path, wrong_s: float) -> None:
    """Writer and sweeper disagree by two days, but the file system's clock is the same for both."""
    right = LocalObjectStore(tmp_path / "data")
    scene = await small_scene(right)
    await archiver_of(scene, right).run_once()
    early = await orphan_in(right, "cd")
    clock = ManualClock(Runtime().clock.now_ms() / 1_000 + wrong_s)
    runtime = Runtime(clock, SeededEntropy(4))
    wrong = LocalObjectStore(tmp_path / "data", runtime)
    await orphan_in(wrong, "ef")  # by the process with the wrong clock, but not older for that
    settings = SweepSettings(delete=True)
    assert [stray async for stray in BucketSweep(wrong, SaidTopics(), runtime, settings).strays()] == []
    os.utime(tmp_path / "data" / early, (1_000_000_000, 1_000_000_000))
    strays = [stray async for stray in BucketSweep(wrong, SaidTopics(), runtime, settings).strays()]
    assert [stray.key for stray in strays] == [early]
    await check_logs(scene, right)
    for store in (wrong, right):
        await store.aclose()


async def test_temporary_files_of_a_process_that_died_go(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path / "data")
    folder = tmp_path / "data" / ".tidelog" / "tmp"
    for name in ("old", "young"):
        (folder / name).write_bytes(b"x" * 7)
    os.utime(folder / "old", (1_000_000_000, 1_000_000_000))
    strays = await swept(RetryingObjectStore(store, Runtime()), SweepSettings(delete=True))
    assert [(stray.key, stray.size_bytes, stray.reason) for stray in strays] == [
        (".tidelog/tmp/old", 7, Reason.PARTIAL)
    ]
    assert [path.name for path in folder.iterdir()] == ["young"]
    await store.aclose()


async def test_nothing_of_a_sweep_is_left_behind(bucket: Bucket) -> None:
    await swept(bucket.store, NO_GRACE)
    assert await keys(bucket.store, "") == []
