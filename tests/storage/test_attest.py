"""Attestation finds earlier heads in the history of an archive that grew, and not in that of an archive that was
altered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest
from tests.storage.archive_scenes import ManualClock
from tests.storage.collect_scenes import GRACE_S, PLACE, CollectScene
from tests.storage.manifest_histories import RECORDS, TOPIC, a_segment, archived, history_of
from tests.storage.record_tables import SHOP, WEB, WEB_1

from tidelog.storage.bucket.attest import (
    BucketAttestation,
    PartitionHead,
    Unproved,
    attestation_lines,
    digest_of,
    read_attestation,
)
from tidelog.storage.bucket.listing import archived_partitions
from tidelog.storage.errors import Invalid
from tidelog.storage.manifests.manifest import ChangeKind, Manifest
from tidelog.storage.manifests.manifest_chain import chain_fault, grown
from tidelog.storage.manifests.manifest_codec import encode_manifest
from tidelog.storage.manifests.manifest_history import HistoryBlock, ManifestHistory, encode_block
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ByteRange, ObjectInfo, ObjectStore, StoredObject
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb


async def attested(
    store: ObjectStore, earlier: tuple[PartitionHead, ...] | None = None
) -> tuple[tuple[PartitionHead, ...], list[Unproved], str]:
    attestation = BucketAttestation(store, earlier)
    heads, unproved = [], []
    async for told in attestation.partitions():
        if isinstance(told, PartitionHead):
            heads.append(told)
        else:
            unproved.append(told)
    return tuple(heads), unproved, attestation.digest


@pytest.fixture
def store() -> MemoryObjectStore:
    return MemoryObjectStore()


async def collected_scene(store: MemoryObjectStore) -> tuple[CollectScene, tuple[PartitionHead, ...]]:
    """30 versions, and the heads of the 10th. The first versions are history by now, and the 10th version is
    deleted."""
    scene = CollectScene(store)
    await scene.grow(10)
    earlier, _, _ = await attested(store)
    await scene.grow(20)
    await scene.collector().see_wait_and_run()
    assert min(await scene.versions()) > earlier[0].version
    return scene, earlier


async def test_a_head_tells_where_a_partition_stands(store: MemoryObjectStore) -> None:
    newest = await history_of(store).run(7)
    [head], unproved, digest = await attested(store)
    offsets = (newest.log_start_offset, newest.cold_end)
    assert head == PartitionHead(TOPIC, WEB.topic_id, 0, 6, *offsets, len(newest.segments), newest.head)
    assert (unproved, digest) == ([], digest_of([head]))


async def test_an_archive_that_grew_and_was_collected_is_proved(store: MemoryObjectStore) -> None:
    _, earlier = await collected_scene(store)
    [head], unproved, _ = await attested(store, earlier)
    assert unproved == []
    assert head.version > earlier[0].version + 19


async def test_every_earlier_head_is_found_whether_its_version_is_there_or_history(store: MemoryObjectStore) -> None:
    scene, [earlier] = await collected_scene(store)
    for manifest in scene.history.versions:
        then = replace(earlier, version=manifest.version, head=manifest.head)
        assert (await attested(store, (then,)))[1] == [], manifest.version
        forged = replace(then, head="0" * 63 + "1")
        [fault] = (await attested(store, (forged,)))[1]
        assert f"version {manifest.version} " in fault.fault


async def test_without_earlier_heads_a_partition_takes_a_few_requests(store: MemoryObjectStore) -> None:
    scene, _ = await collected_scene(store)
    for place in (WEB_1, SHOP):
        await history_of(store, place=place).run(3)
    await scene.grow(300)
    counting = CountingObjectStore(store)
    heads, _, _ = await attested(counting)
    assert [head.place.topic_partition for head in heads] == [WEB, WEB_1, SHOP]
    usage = counting.usage()
    assert usage.requests(Verb.GET) == 3
    assert usage.requests(Verb.LIST) == 3 + 3 + 1 + 1, "each partition twice, the segments of one topic, and the end"


async def test_partitions_are_found_among_many_objects(store: MemoryObjectStore) -> None:
    assert [place async for place in archived_partitions(store)] == []
    for place in (SHOP, WEB_1, WEB):
        await history_of(store, place=place).run(2)
        await store.put(a_segment(0, place).key, b"")
    for stray in ("topics/README", "topics/zebra/name", "topics/web/x", "wal/0000/00000000000000000001.parquet"):
        await store.put(stray, b"")
    assert [place.topic_partition async for place in archived_partitions(store)] == [WEB, WEB_1, SHOP]


async def test_the_digest_is_of_all_heads_in_any_order(store: MemoryObjectStore) -> None:
    for place in (WEB, WEB_1, SHOP):
        await history_of(store, place=place).run(3)
    heads, _, digest = await attested(store)
    assert digest == digest_of(reversed(heads))
    await history_of(store, place=SHOP).run(1)
    assert (await attested(store))[2] != digest


# ---- what an attestation must see


async def rewritten(store: ObjectStore, version: int, change: Callable[[Manifest], Manifest], kind: ChangeKind) -> None:
    """A skilled attacker replaces `version` and all later versions, with all hashes correct."""
    log = ManifestLog(store, TOPIC, WEB)
    newest = (await log.latest()).version
    before = await log.read(version - 1) if version else Manifest(WEB)
    made = grown(before, change(before), kind)
    assert chain_fault(made) is None
    await store.put(log.key(version), encode_manifest(made))
    for number in range(version + 1, newest + 1):
        made = grown(made, archived(made, made.cold_end // RECORDS), ChangeKind.ARCHIVE)
        await store.put(log.key(number), encode_manifest(made))


def another_segment(before: Manifest) -> Manifest:
    segment = a_segment(before.cold_end // RECORDS, salt="forged")
    return replace(before, segments=(*before.segments, segment), cold_end=segment.next_offset)


async def test_a_past_that_was_rewritten_with_all_its_hashes_is_reported(store: MemoryObjectStore) -> None:
    """Only a person who kept an earlier head can notice this."""
    await history_of(store).run(5, [ChangeKind.ARCHIVE])
    earlier, _, _ = await attested(store)
    await history_of(store).run(3, [ChangeKind.ARCHIVE])
    assert (await attested(store, earlier))[1] == []
    await rewritten(store, 3, another_segment, ChangeKind.ARCHIVE)
    assert (await attested(store))[1] == [], "by itself it looks sound"
    assert (await attested(store, ()))[1] == []
    [fault] = (await attested(store, earlier))[1]
    assert "the past was rewritten" in fault.fault


async def drop_newest(store: MemoryObjectStore) -> None:
    log = ManifestLog(store, TOPIC, WEB)
    for version in range(3, 8):
        await store.delete(log.key(version))


async def drop_in_the_middle(store: MemoryObjectStore) -> None:
    await store.delete(ManifestLog(store, TOPIC, WEB).key(2))


async def drop_all(store: MemoryObjectStore) -> None:
    log = ManifestLog(store, TOPIC, WEB)
    for version in range(8):
        await store.delete(log.key(version))


async def flip(store: MemoryObjectStore) -> None:
    key = ManifestLog(store, TOPIC, WEB).key(2)
    body = (await store.get(key)).data
    await store.put(key, body.replace(b'"records":1000', b'"records":1001'))


async def lie_about_a_change(store: MemoryObjectStore) -> None:
    """The change and the checksum are altered, the head is not."""
    log = ManifestLog(store, TOPIC, WEB)
    manifest = await log.read(2)
    assert manifest.change is not None
    await store.put(log.key(2), encode_manifest(replace(manifest, change=replace(manifest.change, added=()))))


async def list_another_segment(store: MemoryObjectStore) -> None:
    """The newest list is altered, but not the changes that its version states."""
    log = ManifestLog(store, TOPIC, WEB)
    manifest = await log.latest()
    forged = replace(manifest.segments[3], sha256="ab" * 32)
    segments = (*manifest.segments[:3], forged, *manifest.segments[4:])
    await store.put(log.key(7), encode_manifest(replace(manifest, segments=segments)))


async def archive_takes_away(store: MemoryObjectStore) -> None:
    await rewritten(store, 6, lambda before: replace(before, segments=before.segments[1:]), ChangeKind.ARCHIVE)


async def expiry_adds(store: MemoryObjectStore) -> None:
    await rewritten(store, 6, another_segment, ChangeKind.EXPIRE)


async def merge_moves_the_log_start(store: MemoryObjectStore) -> None:
    await rewritten(store, 6, lambda before: replace(before, log_start_offset=5), ChangeKind.MERGE)


async def collection_moves_the_end(store: MemoryObjectStore) -> None:
    await rewritten(store, 6, lambda before: replace(before, cold_end=before.cold_end + 5), ChangeKind.COLLECT)


ALTERATIONS: dict[str, tuple[Callable[[MemoryObjectStore], Awaitable[None]], str]] = {
    "newest versions deleted": (drop_newest, "ends at version 2, before version 4"),
    "a version deleted": (drop_in_the_middle, "is missing, and no block of the history has it"),
    "all manifests deleted": (drop_all, "has no manifest any more"),
    "a version damaged": (flip, "does not have its checksum"),
    "a change that is not the one made": (lie_about_a_change, "does not hash to its head"),
    "a segment exchanged": (list_another_segment, "lacks 1 segments of its history, and lists 1 that are not in it"),
    "archiving took away": (archive_takes_away, "removed segments, which archive does not do"),
    "expiry added": (expiry_adds, "added segments, which expire does not do"),
    "merging moved the log start": (merge_moves_the_log_start, "moved the log start, which merge does not do"),
    "collection moved the cold end": (collection_moves_the_end, "moved the cold end, which collect does not do"),
}


@pytest.mark.parametrize("name", ALTERATIONS)
async def test_an_archive_that_was_altered_is_reported_and_the_others_are_proved(
    store: MemoryObjectStore, name: str
) -> None:
    alter, said = ALTERATIONS[name]
    await history_of(store).run(5, [ChangeKind.ARCHIVE])
    await history_of(store, place=SHOP).run(5)
    earlier, _, _ = await attested(store)
    await history_of(store).run(3, [ChangeKind.ARCHIVE])
    await alter(store)
    heads, [unproved], _ = await attested(store, earlier)
    assert said in unproved.fault
    assert (unproved.topic, unproved.topic_id, unproved.partition) == (TOPIC, WEB.topic_id, 0)
    assert [head.place.topic_partition for head in heads] == [SHOP]


@pytest.mark.parametrize("alteration", ["missing", "damaged", "a step left out", "a hash exchanged"])
async def test_a_history_that_was_altered_is_reported(store: MemoryObjectStore, alteration: str) -> None:
    _, earlier = await collected_scene(store)
    history = ManifestHistory(store, TOPIC, WEB)
    key, block = history.key(4, 7), await history.read(4, 7)
    exchanged = replace(block.steps[2], change=replace(block.steps[2].change, added=("cd" * 32,)))
    forged: dict[str, HistoryBlock] = {
        "a step left out": replace(block, steps=block.steps[:3]),
        "a hash exchanged": replace(block, steps=(*block.steps[:2], exchanged, block.steps[3])),
    }
    if alteration == "missing":
        await store.delete(key)
    elif alteration == "damaged":
        await store.put(key, (await store.get(key)).data[:-2])
    else:
        await store.put(key, encode_block(forged[alteration]))
    [unproved] = (await attested(store, earlier))[1]
    assert {
        "missing": "is missing, and no block of the history has it",
        "damaged": key,
        "a step left out": "of other versions",
        "a hash exchanged": "version 6 does not hash to its head",
    }[alteration] in unproved.fault


async def test_an_archive_is_proved_while_it_is_collected(store: MemoryObjectStore) -> None:
    """Between any two requests of the attestation, versions are appended, made history, and deleted."""
    scene = CollectScene(store)
    await scene.grow(12)
    earlier, _, _ = await attested(store)
    collector = scene.collector()

    class Busy(MemoryObjectStore):
        async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
            await scene.grow(2)
            scene.clock.now_s += GRACE_S
            await collector.run()
            return await store.get(key)

        async def list(self, prefix: str, *, start_after: str = "", limit: int = 1_000) -> Sequence[ObjectInfo]:
            return await store.list(prefix, start_after=start_after, limit=limit)

    heads, unproved, _ = await attested(Busy(ManualClock()), earlier)
    assert unproved == []
    assert [head.place for head in heads] == [PLACE]
    assert min(await scene.versions()) > 12


# ---- the file


async def test_an_attestation_is_read_as_it_was_written(store: MemoryObjectStore) -> None:
    for place in (WEB, SHOP):
        await history_of(store, place=place).run(3)
    heads, _, _ = await attested(store)
    lines = list(attestation_lines(heads))
    assert read_attestation(b"\n".join(lines) + b"\n") == heads
    assert read_attestation(b"\n".join(attestation_lines([]))) == ()


async def test_a_file_that_lost_a_line_or_was_altered_is_refused(store: MemoryObjectStore) -> None:
    await history_of(store).run(3)
    [head], _, _ = await attested(store)
    line, end = attestation_lines([head])
    for text in (end, line, b"", b"[]", b"\xff", line.replace(b'"version":2', b'"version":1') + b"\n" + end):
        with pytest.raises(Invalid):
            read_attestation(text)
