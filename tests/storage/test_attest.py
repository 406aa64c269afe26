"""Attestation finds earlier heads in the history of an archive that grew, and not in that of an archive that was
altered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace

import pytest
from msgspec import structs
from tests.storage.archive_scenes import ManualClock
from tests.storage.collect_scenes import GRACE_S, CollectScene
from tests.storage.shard_histories import SHARD, TOPIC, TOPIC_ID

from tidelog.storage.bucket.attest import (
    BucketAttestation,
    TopicHead,
    Unproved,
    attestation_lines,
    digest_of,
    read_attestation,
)
from tidelog.storage.errors import Invalid
from tidelog.storage.layout import manifests_prefix
from tidelog.storage.manifests.segment_columns import columns_of
from tidelog.storage.manifests.shard_chain import Recorded, TopicStep
from tidelog.storage.manifests.shard_history import BLOCK, HistoryBlock, ShardHistory
from tidelog.storage.manifests.shard_manifest import (
    ManifestChange,
    ShardManifest,
    TopicChange,
    decode_version,
    encode_version,
    head_of,
)
from tidelog.storage.manifests.shard_values import ChangeKind, ColdState, SegmentSpan, TopicSegment
from tidelog.storage.object_store import ByteRange, ObjectInfo, ObjectStore, StoredObject
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb
from tidelog.storage.wal.floor import Floor

OTHER, OTHER_ID = "other", "f" * 32


async def attested(
    store: ObjectStore,
    earlier: Sequence[TopicHead] | None = None,
    topics: Collection[str] = (),
    runtime: Runtime | None = None,
) -> tuple[list[TopicHead], list[Unproved], str]:
    attestation = BucketAttestation(store, runtime or Runtime(), earlier, topics=topics)
    told = [answer async for answer in attestation.heads()]
    heads = [answer for answer in told if isinstance(answer, TopicHead)]
    return heads, [answer for answer in told if isinstance(answer, Unproved)], attestation.digest


@pytest.fixture
def store() -> MemoryObjectStore:
    return MemoryObjectStore()


async def collected_scene(store: ObjectStore) -> tuple[CollectScene, list[TopicHead]]:
    """30 versions, and the head at the 10th. The first versions are history by now, and the 10th is deleted."""
    scene = CollectScene(store)
    await scene.grow(10)
    earlier, _, _ = await attested(store)
    await scene.grow(20)
    await scene.worker().see_wait_and_run()
    assert min(await scene.versions()) > earlier[0].version
    return scene, earlier


async def another_topic(scene: CollectScene, number: int = 0) -> None:
    key = f"topics/{OTHER}/{OTHER_ID}/{SHARD:04d}-{number:032x}.parquet"
    segment = TopicSegment(key, number, 0, 1, f"{number:064x}", 0, 0, 0, (SegmentSpan(0, number, number, 1, 1),))
    change = TopicChange(OTHER, added=(segment,), partitions={0: ColdState(0, number + 1)})
    await scene.latest(scene.log)
    await scene.append(ManifestChange(ChangeKind.ARCHIVE, {OTHER_ID: change}))


async def test_a_head_tells_where_a_topic_stands(store: MemoryObjectStore) -> None:
    newest = await CollectScene(store).grow(7)
    [head], unproved, digest = await attested(store)
    totals = newest.topics[TOPIC_ID].totals
    assert head == TopicHead(TOPIC, TOPIC_ID, SHARD, 6, totals.segments, totals.records, newest.head)
    assert (unproved, digest) == ([], digest_of([head]))


async def test_an_archive_that_grew_and_was_collected_is_proved(store: MemoryObjectStore) -> None:
    _, earlier = await collected_scene(store)
    [head], unproved, _ = await attested(store, earlier)
    assert unproved == []
    assert head.version > earlier[0].version + 19


async def test_every_earlier_head_is_found_whether_its_version_is_there_or_history(store: MemoryObjectStore) -> None:
    scene, [earlier] = await collected_scene(store)
    for version, head in scene.heads.items():
        then = replace(earlier, version=version, head=head)
        assert (await attested(store, [then]))[1] == [], version
        [fault] = (await attested(store, [replace(then, head="0" * 63 + "1")]))[1]
        assert f"version {version} has head" in fault.fault
        assert "the past was rewritten" in fault.fault


async def test_without_earlier_heads_a_shard_takes_a_listing_and_one_version(store: MemoryObjectStore) -> None:
    scene, _ = await collected_scene(store)
    await another_topic(scene)
    counting = CountingObjectStore(store)
    heads, _, _ = await attested(counting)
    assert [head.topic for head in heads] == [OTHER, TOPIC] or [head.topic for head in heads] == [TOPIC, OTHER]
    assert (counting.usage().requests(Verb.GET), counting.usage().requests(Verb.LIST)) == (1, 4)


async def test_only_the_topics_that_were_asked_for_are_attested(store: MemoryObjectStore) -> None:
    scene = CollectScene(store)
    await scene.grow(5)
    await another_topic(scene)
    everything, _, _ = await attested(store)
    assert {head.topic for head in everything} == {TOPIC, OTHER}
    [head], _, _ = await attested(store, topics=[OTHER])
    assert head.topic == OTHER
    assert [head.topic for head in (await attested(store, everything, topics=[OTHER]))[0]] == [OTHER]


async def test_the_digest_is_of_all_heads_in_any_order(store: MemoryObjectStore) -> None:
    scene = CollectScene(store)
    await scene.grow(5)
    await another_topic(scene)
    heads, _, digest = await attested(store)
    assert digest == digest_of(reversed(heads))
    await scene.grow(1)
    assert (await attested(store))[2] != digest


async def test_a_deleted_topic_is_named_with_the_version_that_deleted_it(store: MemoryObjectStore) -> None:
    scene = CollectScene(store)
    await scene.grow(5)
    await another_topic(scene)
    earlier, _, _ = await attested(store)
    await scene.append(ManifestChange(ChangeKind.DELETE_TOPIC, dropped=(OTHER_ID,)))
    [head], [gone], _ = await attested(store, earlier)
    assert (head.topic, gone.topic) == (TOPIC, OTHER)
    assert "version 6 deleted the topic" in gone.fault


# ---- what an attestation must see


def key_of(version: int) -> str:
    return f"{manifests_prefix(SHARD)}{version:020d}.json"


async def stored(store: ObjectStore, version: int) -> ShardManifest:
    return decode_version(key_of(version), (await store.get(key_of(version))).data)


async def rewritten(store: ObjectStore, version: int, change: Callable[[ShardManifest], ShardManifest]) -> None:
    """A skilled attacker replaces `version` and all later versions, with all hashes correct."""
    newest, before = max([int(info.key[-25:-5]) for info in await store.list(manifests_prefix(SHARD) + "0")]), None
    for number in range(version, newest + 1):
        made = await stored(store, number)
        made = change(made) if before is None else structs.replace(made, previous_head=before.head)
        before = structs.replace(made, head=head_of(made))
        await store.put(key_of(number), encode_version(before))


def recorded(made: ShardManifest, how: Callable[[TopicStep], TopicStep]) -> ShardManifest:
    assert made.recorded is not None
    topics = {**made.recorded.topics, TOPIC_ID: how(made.recorded.topics[TOPIC_ID])}
    return structs.replace(made, recorded=Recorded(made.recorded.kind, topics))


def another_segment(made: ShardManifest) -> ShardManifest:
    return recorded(made, lambda step: structs.replace(step, added=("cd" * 32,)))


async def test_a_past_that_was_rewritten_with_all_its_hashes_is_reported(store: MemoryObjectStore) -> None:
    """Only a person who kept an earlier head can notice this: the floor of a version is another."""
    scene = CollectScene(store)
    await scene.grow(5, [ChangeKind.ARCHIVE])
    earlier, _, _ = await attested(store)
    await scene.grow(3, [ChangeKind.ARCHIVE])
    assert (await attested(store, earlier))[1] == []

    def further(made: ShardManifest) -> ShardManifest:
        return structs.replace(made, floor=Floor(made.floor.number, made.floor.epoch + 7))

    await rewritten(store, 3, further)
    assert (await attested(store, []))[1] == [], "by itself it looks sound"
    [fault] = (await attested(store, earlier))[1]
    assert "the past was rewritten" in fault.fault


async def drop_newest(store: MemoryObjectStore) -> None:
    for version in range(3, 8):
        await store.delete(key_of(version))


async def drop_in_the_middle(store: MemoryObjectStore) -> None:
    await store.delete(key_of(2))


async def drop_all(store: MemoryObjectStore) -> None:
    for version in range(8):
        await store.delete(key_of(version))


async def damage(store: MemoryObjectStore) -> None:
    await store.put(key_of(2), (await store.get(key_of(2))).data[:-9])


async def lie_about_a_change(store: MemoryObjectStore) -> None:
    """The change and the checksum are altered, the head is not."""
    await store.put(key_of(2), encode_version(another_segment(await stored(store, 2))))


async def list_another_segment(store: MemoryObjectStore) -> None:
    """The newest list is altered, but not the changes that the versions state."""
    newest = await stored(store, 7)
    topic = newest.topics[TOPIC_ID]
    altered = structs.replace(
        topic, added=columns_of([structs.replace(topic.added[0], sha256="ab" * 32), *topic.added[1:]])
    )
    await store.put(key_of(7), encode_version(structs.replace(newest, topics={TOPIC_ID: altered})))


async def archive_takes_away(store: MemoryObjectStore) -> None:
    await rewritten(store, 6, lambda made: recorded(made, lambda step: structs.replace(step, removed=("cd" * 32,))))


async def archive_moves_the_log_start(store: MemoryObjectStore) -> None:
    def moved(step: TopicStep) -> TopicStep:
        return structs.replace(step, offsets=tuple((number, 1, end, clean) for number, _, end, clean in step.offsets))

    await rewritten(store, 6, lambda made: recorded(made, moved))


async def archive_goes_back(store: MemoryObjectStore) -> None:
    def moved(step: TopicStep) -> TopicStep:
        return structs.replace(step, offsets=tuple((number, 0, 0, 0) for number in range(5)))

    await rewritten(store, 6, lambda made: recorded(made, moved))


ALTERATIONS: dict[str, tuple[Callable[[MemoryObjectStore], Awaitable[None]], str]] = {
    "newest versions deleted": (drop_newest, "ends at version 2, before version 4"),
    "a version deleted": (drop_in_the_middle, "is missing, and no block of the history has it"),
    "all manifests deleted": (drop_all, "ends at version -1, before version 4"),
    "a version damaged": (damage, key_of(2)),
    "a change that is not the one made": (lie_about_a_change, "does not hash to its head"),
    "a segment exchanged": (list_another_segment, "lacks 1 segments of its history, and lists 1 that are not in it"),
    "archiving took away": (archive_takes_away, "removed segments, which archive does not do"),
    "archiving moved the log start": (archive_moves_the_log_start, "moved the log start"),
    "archiving went back": (archive_goes_back, "back"),
}


@pytest.mark.parametrize("name", ALTERATIONS)
async def test_an_archive_that_was_altered_is_reported(store: MemoryObjectStore, name: str) -> None:
    alter, said = ALTERATIONS[name]
    scene = CollectScene(store)
    await scene.grow(5, [ChangeKind.ARCHIVE])
    earlier, _, _ = await attested(store)
    await scene.grow(3, [ChangeKind.ARCHIVE])
    await alter(store)
    _, [unproved], _ = await attested(store, earlier)
    assert said in unproved.fault
    assert (unproved.topic, unproved.topic_id, unproved.shard) == (TOPIC, TOPIC_ID, SHARD)


async def test_a_topic_is_proved_whatever_the_newest_version_says_of_others(store: MemoryObjectStore) -> None:
    scene = CollectScene(store)
    await scene.grow(3, [ChangeKind.ARCHIVE])
    await another_topic(scene)
    earlier, _, _ = await attested(store)
    await scene.grow(4, [ChangeKind.ARCHIVE])
    newest = await stored(store, 7)
    other = newest.topics[OTHER_ID]
    altered = structs.replace(other, added=columns_of([structs.replace(other.added[0], sha256="ab" * 32)]))
    await store.put(key_of(7), encode_version(structs.replace(newest, topics={**newest.topics, OTHER_ID: altered})))
    [head], [unproved], _ = await attested(store, earlier)
    assert (head.topic, unproved.topic) == (TOPIC, OTHER)


@pytest.mark.parametrize("alteration", ["missing", "damaged", "a step left out", "a hash exchanged"])
async def test_a_history_that_was_altered_is_reported(store: MemoryObjectStore, alteration: str) -> None:
    _, earlier = await collected_scene(store)
    history = ShardHistory(store, SHARD)
    key, block = history.key(4, 7), await history.read(4, 7)
    step = block.steps[2]
    exchanged = structs.replace(step, recorded=Recorded(step.recorded.kind, {TOPIC_ID: TopicStep(added=("cd" * 32,))}))
    forged: dict[str, HistoryBlock] = {
        "a step left out": structs.replace(block, steps=block.steps[:3]),
        "a hash exchanged": structs.replace(block, steps=(*block.steps[:2], exchanged, block.steps[3])),
    }
    if alteration == "missing":
        await store.delete(key)
    elif alteration == "damaged":
        await store.put(key, (await store.get(key)).data[:-2])
    else:
        await store.put(key, BLOCK.encode(forged[alteration]))
    [unproved] = (await attested(store, earlier))[1]
    assert {
        "missing": "is missing, and no block of the history has it",
        "damaged": key,
        "a step left out": "of other versions",
        "a hash exchanged": "version 6 does not hash to its head",
    }[alteration] in unproved.fault


async def test_an_archive_is_proved_while_it_is_collected(store: MemoryObjectStore) -> None:
    """Before each read of the attestation, versions are appended, made history, and deleted."""
    scene = CollectScene(store)
    await scene.grow(12)
    earlier, _, _ = await attested(store)
    worker, turn = scene.worker(), asyncio.Lock()

    class Busy(MemoryObjectStore):
        async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
            async with turn:
                await scene.grow(2)
                scene.clock.now_s += GRACE_S
                await worker.run()
            return await store.get(key, byte_range)

        async def head(self, key: str) -> ObjectInfo:
            return await store.head(key)

        async def list(self, prefix: str, *, start_after: str = "", limit: int = 1_000) -> Sequence[ObjectInfo]:
            return await store.list(prefix, start_after=start_after, limit=limit)

    runtime = Runtime(scene.clock, SeededEntropy(3))
    heads, unproved, _ = await attested(Busy(ManualClock()), earlier, runtime=runtime)
    assert unproved == []
    assert [head.topic_id for head in heads] == [TOPIC_ID]
    assert min(await scene.versions()) > 12


# ---- the file


async def test_an_attestation_is_read_as_it_was_written(store: MemoryObjectStore) -> None:
    scene = CollectScene(store)
    await scene.grow(3)
    await another_topic(scene)
    heads, _, _ = await attested(store)
    lines = list(attestation_lines(heads))
    assert read_attestation(b"\n".join(lines) + b"\n") == tuple(sorted(heads))
    assert read_attestation(b"\n".join(attestation_lines([]))) == ()


async def test_a_file_that_lost_a_line_or_was_altered_is_refused(store: MemoryObjectStore) -> None:
    await CollectScene(store).grow(3)
    [head], _, _ = await attested(store)
    line, end = attestation_lines([head])
    for text in (end, line, b"", b"[]", b"\xff", line.replace(b'"version":2', b'"version":1') + b"\n" + end):
        with pytest.raises(Invalid):
            read_attestation(text)


def test_a_file_of_another_version_is_refused_with_what_to_do() -> None:
    for version, text in ((1, b'{"partitions":0,"digest":""}'), (9, b'{"heads":0,"digest":"","format_version":9}')):
        with pytest.raises(Invalid, match=f"format version {version}.*attest anew"):
            read_attestation(text)
