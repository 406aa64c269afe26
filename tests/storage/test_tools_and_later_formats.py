"""An object that a later version of Tidelog wrote in one shard is a finding; verify, sweep and repair do the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from tests.formats.later_program import later
from tests.storage.archive_scenes import Scene, archiver_of, keys, small_scene
from tests.storage.copy_scenes import Source
from tests.storage.known_topics import SaidTopics, known, scene_topics
from tests.storage.record_tables import SHOP, WEB
from tests.storage.sweep_scenes import NO_GRACE

from tidelog.storage import formats
from tidelog.storage.archive.archiver import Archiver
from tidelog.storage.bucket.copy.bucket_copy import BucketCopy
from tidelog.storage.bucket.copy.transfer import Transfer
from tidelog.storage.bucket.repair.bucket_repair import BucketRepair
from tidelog.storage.bucket.sweep.bucket_sweep import BucketSweep
from tidelog.storage.bucket.verify.verification import BucketVerification
from tidelog.storage.formats import Format
from tidelog.storage.layout import TopicPartition, lists_prefix, shard_segment_key
from tidelog.storage.manifests import topic_lists
from tidelog.storage.manifests.shard_manifest import ManifestChange
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.stores.memory import MemoryObjectStore

NEWS = TopicPartition("33" * 16, 0)
TOPICS = SaidTopics(scene_topics() | known("news", NEWS.topic_id, 1))
WHAT_TO_DO = "a later version of Tidelog wrote it. Install that version here"


@pytest.fixture(autouse=True)
def lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every version writes new lists of the topics that it changes."""
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 0)


@dataclass
class TwoShards:
    """Shard 0 is archived; shard 1 is, too, and has two more entries in its log."""

    store: MemoryObjectStore = field(default_factory=MemoryObjectStore)
    scene: Scene = field(init=False)
    other: Scene = field(init=False)

    async def filled(self) -> TwoShards:
        self.scene = await small_scene(self.store)
        await archiver_of(self.scene, self.store).run_once()
        self.other = Scene(self.store, self.scene.clock, shard=1)
        await self.other.append({NEWS: 3})
        await Archiver(
            self.store, self.other.wal, self.other.log, self.other.runtime(1), {NEWS.topic_id: "news"}.get
        ).run_once()
        for _ in range(2):
            await self.other.append({NEWS: 2})
        return self

    async def findings(self, *, deep: bool) -> dict[str, str]:
        verification = BucketVerification(self.store, deep=deep, topics=TOPICS, runtime=self.scene.runtime())
        return {finding.key: finding.text async for finding in verification.findings()}


async def a_version(bucket: TwoShards) -> str:
    with later(formats.MANIFEST):
        await bucket.scene.log.change((), lambda manifest: ManifestChange(ChangeKind.SWEEP))
    return bucket.scene.log.key(1)


async def a_list(bucket: TwoShards) -> str:
    with later(formats.SEGMENT_LIST):
        await bucket.scene.append({WEB: 1}, epoch=2)
        await archiver_of(bucket.scene, bucket.store, seed=5).run_once()
    stored = (await bucket.scene.log.latest()).topics[WEB.topic_id].stored
    assert stored is not None
    return stored.key


async def an_entry(bucket: TwoShards) -> str:
    with later(formats.WAL):
        await bucket.scene.append({WEB: 1}, epoch=2)
    return bucket.scene.wal.key(bucket.scene.next_seq - 1)


Wrote = Callable[[TwoShards], Awaitable[str]]
LATER: list[tuple[Wrote, Format]] = [
    (a_version, formats.MANIFEST),
    (a_list, formats.SEGMENT_LIST),
    (an_entry, formats.WAL),
]
each_object = pytest.mark.parametrize(("wrote", "form"), LATER, ids=lambda each: getattr(each, "__name__", ""))


def expect_told(text: str, form: Format) -> None:
    assert f"version {form.newest + 1} of the format '{form.name}'" in text
    assert WHAT_TO_DO in text


@pytest.mark.parametrize("deep", [False, True])
@each_object
async def test_verify_goes_on_in_the_other_shards(wrote: Wrote, form: Format, deep: bool) -> None:
    bucket = await TwoShards().filled()
    key = await wrote(bucket)
    (lost,) = await keys(bucket.store, "topics/news/")
    await bucket.store.delete(lost)
    found = await bucket.findings(deep=deep)
    assert found.keys() == {key, lost}
    expect_told(found[key], form)


async def orphan_of(bucket: TwoShards, topic: str, topic_id: str, shard: int) -> str:
    """A segment of the topic once more, under another id."""
    former = (await keys(bucket.store, f"topics/{topic}/"))[0]
    key = shard_segment_key(topic, topic_id, shard, "cd" * 16)
    await bucket.store.create(key, (await bucket.store.get(former)).data)
    return key


@each_object
async def test_a_sweep_goes_on_in_the_other_shards(wrote: Wrote, form: Format) -> None:
    bucket = await TwoShards().filled()
    key = await wrote(bucket)
    kept, orphan = await orphan_of(bucket, "web", WEB.topic_id, 0), await orphan_of(bucket, "news", NEWS.topic_id, 1)
    sweep = BucketSweep(bucket.store, TOPICS, bucket.scene.runtime(9), NO_GRACE)
    swept = [stray.key async for stray in sweep.strays()]
    if wrote is an_entry:  # a sweep does not read entries
        assert (set(swept), sweep.report.unjudged) == ({kept, orphan}, {})
        return
    assert swept == [orphan]
    expect_told(sweep.report.unjudged[key], form)
    assert {kept, *await keys(bucket.store, lists_prefix(0))} <= set(await keys(bucket.store, ""))


@each_object
async def test_a_repair_goes_on_in_the_other_shards_and_changes_nothing_there(wrote: Wrote, form: Format) -> None:
    bucket = await TwoShards().filled()
    key = await wrote(bucket)
    before = {each: (await bucket.store.get(each)).data for each in await keys(bucket.store, "")}
    lost = bucket.other.wal.key(1)
    await bucket.store.delete(lost)
    repair = BucketRepair(bucket.store, TOPICS, bucket.scene.runtime(9), deep=True)
    plan = await repair.plan()
    assert ([each.shard for each in plan.shards], [each.key for each in plan.unsolved]) == ([1], [key])
    expect_told(plan.unsolved[0].text, form)
    assert "backup" not in plan.unsolved[0].text
    await repair.apply(plan)
    assert await bucket.findings(deep=False) == {
        key: plan.unsolved[0].text,
        bucket.other.log.key(1): f"offsets 3 to 4 of partition 0 are recorded as lost; {lost} held them, of topic news "
        "in shard 1",
    }
    assert {each: data for each, data in before.items() if each != lost}.items() <= {
        each: (await bucket.store.get(each)).data for each in await keys(bucket.store, "")
    }.items()


async def test_a_copy_says_which_list_it_cannot_read_and_copies_all_segments_of_its_topic() -> None:
    bucket = await TwoShards(Source()).filled()
    key, target = await a_list(bucket), MemoryObjectStore()
    copy = BucketCopy(Transfer(bucket.store, target), TOPICS, "one", bucket.scene.runtime(9))
    (damaged,) = (await copy.run()).damaged
    assert damaged.key == key
    expect_told(damaged.text, formats.SEGMENT_LIST)
    assert await keys(target, "topics/") == await keys(bucket.store, "topics/")


async def test_a_list_of_a_later_format_harms_its_topic_only() -> None:
    bucket = await TwoShards().filled()
    key = await a_list(bucket)
    lost = (await keys(bucket.store, "topics/shop/"))[0]
    await bucket.store.delete(lost)
    assert (await bucket.findings(deep=False)).keys() == {key, lost}
    plan = await BucketRepair(bucket.store, TOPICS, bucket.scene.runtime(9)).plan()
    (repair,) = plan.shards
    assert [(topic.topic_id, set(topic.removed)) for topic in repair.topics] == [(SHOP.topic_id, {lost})]
