"""Objects of other programs in the folders of a shard are named, and their number does not grow a tool's memory."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Sequence

import pytest
from tests.storage.broken_bucket import Bucket, bucket_of_scene
from tests.storage.known_topics import SaidTopics
from tests.storage.sweep_scenes import NO_GRACE, sweep_of

from tidelog.storage.bucket import listing
from tidelog.storage.bucket.finding import Finding, Seen, Severity
from tidelog.storage.bucket.repair import repair_survey
from tidelog.storage.bucket.repair.bucket_repair import BucketRepair
from tidelog.storage.bucket.shard_look import ShardLook
from tidelog.storage.bucket.sweep import sweep_report
from tidelog.storage.bucket.verify.manifest_check import ManifestCheck
from tidelog.storage.layout import MANIFESTS_PREFIX, history_key, manifests_prefix, shard_history_prefix
from tidelog.storage.manifests import shard_history
from tidelog.storage.object_store import LIST_PAGE_MAX, ObjectInfo
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import WrappingObjectStore


class Crowded(WrappingObjectStore):
    """Lists `count` objects more, which are not stored: their keys begin with `stem`, and sort after all others of
    their folder."""

    def __init__(self, inner: MemoryObjectStore, stem: str, count: int) -> None:
        super().__init__(inner)
        self._stem = stem
        self._count = count

    async def list(self, prefix: str, *, start_after: str = "", limit: int = LIST_PAGE_MAX) -> Sequence[ObjectInfo]:
        page = list(await super().list(prefix, start_after=start_after, limit=limit))
        after = start_after.removeprefix(self._stem)
        first = int(after) + 1 if after != start_after else 0
        if self._stem.startswith(prefix) and start_after < f"{self._stem}9":
            end = min(first + limit - len(page), self._count)
            page += [ObjectInfo(f"{self._stem}{number:07d}", 1, "1", 1) for number in range(first, end)]
        return page


async def peak_bytes(bucket: Bucket, stem: str, count: int) -> int:
    """The greatest memory of a check of the manifest, beyond that before it, with `count` foreign objects."""
    found: Counter[str] = Counter()

    async def report(seen: Seen) -> None:
        found[seen.severity.value if isinstance(seen, Finding) else "looked"] += 1

    store = Crowded(bucket.store, f"{manifests_prefix(0)}{stem}", count)
    tracemalloc.start()
    try:
        await ManifestCheck(store, ShardLook(store, 0, Runtime()), report, deep=False).run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        assert found == {"warning": count, "looked": 2}


@pytest.mark.parametrize("stem", ["zz/", "lists/notes-of-mine", f"zz-{0:020d}-"])
async def test_foreign_objects_among_manifests_are_named_and_not_kept(stem: str) -> None:
    bucket = await bucket_of_scene()
    few = await peak_bytes(bucket, stem, 2_000)
    assert await peak_bytes(bucket, stem, 6_000) < few + 300_000


async def only(bucket: Bucket) -> Finding:
    (finding,) = [each for each in await bucket.findings(deep=False) if each.severity is Severity.ERROR]
    return finding


async def test_blocks_of_the_history_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_history, "BLOCKS_MAX", 3)
    bucket = await bucket_of_scene()
    for number in range(4):
        await bucket.store.put(history_key(shard_history_prefix(0), 10 + number, 10 + number), b"?")
    finding = await only(bucket)
    assert finding.key == shard_history_prefix(0)
    assert "more than 3 blocks" in finding.text


async def test_a_repair_looks_for_a_readable_version_among_the_newest_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair_survey, "VERSIONS_MAX", 3)
    bucket = await bucket_of_scene()
    for version in range(2, 5):
        await bucket.store.put(bucket.manifest(version), b"?")
    plan = await BucketRepair(bucket.store, bucket.topics, Runtime()).plan()
    assert (bool(plan), [finding.key for finding in plan.unsolved]) == (False, [bucket.manifest(4)])
    await bucket.store.delete(bucket.manifest(4))
    plan = await BucketRepair(bucket.store, bucket.topics, Runtime()).plan()
    assert [(each.after_version, each.replaces) for each in plan.shards] == [(1, 3)]


async def test_with_too_many_folders_of_shards_verify_and_sweep_say_so_and_do_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listing, "SHARDS_MAX", 3)
    bucket = await bucket_of_scene()
    lost = (await bucket.segment()).key
    await bucket.store.delete(lost)
    for number in range(1, 4):
        await bucket.store.put(f"manifests/{number:04d}/notes", b"")
    errors = {each.key: each.text for each in await bucket.findings(deep=False) if each.severity is Severity.ERROR}
    assert errors.keys() == {lost, MANIFESTS_PREFIX}
    assert "more than 3 shards" in errors[MANIFESTS_PREFIX]
    sweep = sweep_of(bucket.store, NO_GRACE)
    assert [stray async for stray in sweep.strays()] == []
    assert list(sweep.report.unjudged) == [MANIFESTS_PREFIX]


async def test_a_sweep_names_so_many_places_that_it_leaves_alone_and_counts_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweep_report, "UNJUDGED_MAX", 2)
    store = MemoryObjectStore()
    for number in range(5):
        await store.put(f"topics/t{number}/{number:032x}/notes", b"")
    sweep = sweep_of(store, NO_GRACE, SaidTopics({}))
    assert [stray async for stray in sweep.strays()] == []
    assert (len(sweep.report.unjudged), sweep.report.more_unjudged) == (2, 3)
