"""A bucket is broken in every way that `verify` claims to see, and each is named by its key and its cause."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import pytest
from tests.storage.archive_scenes import GRACE_S, Scene, archiver_of, manifest_of, small_scene
from tests.storage.known_topics import SaidTopics, known, scene_topics
from tests.storage.record_tables import SHOP, WEB, WEB_1, record_table

from tidelog.storage.copy_state import CopyState, encode_copy_state
from tidelog.storage.finding import Finding, Severity
from tidelog.storage.json_envelope import seal, unseal
from tidelog.storage.layout import COPY_KEY, floor_key, manifest_prefix, parse_segment_key
from tidelog.storage.manifest import MANIFEST_FORMAT_VERSION, ChangeKind, Manifest, Segment
from tidelog.storage.manifest_codec import WHOLE_SEGMENTS_MAX
from tidelog.storage.manifest_log import ManifestLog
from tidelog.storage.segment_codec import encode_segment
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.verify import BucketVerification
from tidelog.storage.wal_index import IndexedEntry, WalIndex, encode_block, index_row


@dataclass
class Bucket:
    """Two segments in each partition, entries from number 7 on in the log, and an index of it."""

    store: MemoryObjectStore
    scene: Scene
    topics: SaidTopics

    async def findings(self, *, deep: bool) -> list[Finding]:
        verification = BucketVerification(self.store, deep=deep, topics=self.topics)
        return [finding async for finding in verification.findings()]

    async def segment(self, number: int = 0) -> Segment:
        return (await manifest_of(self.store, WEB)).segments[number]

    def entry(self, seq: int) -> str:
        return self.scene.wal.key(seq)

    def manifest(self, version: int) -> str:
        return f"{manifest_prefix('web', WEB.topic_id, 0)}{version:020d}.json"

    async def change(self, key: str, how: Callable[[bytes], bytes]) -> None:
        await self.store.put(key, how((await self.store.get(key)).data))

    async def swap(self, one: str, other: str) -> None:
        first, second = (await self.store.get(one)).data, (await self.store.get(other)).data
        await self.store.put(one, second)
        await self.store.put(other, first)

    async def duplicate(self, key: str, under: str) -> None:
        await self.store.put(under, (await self.store.get(key)).data)

    async def append(self, manifest: Manifest, kind: ChangeKind = ChangeKind.ARCHIVE) -> None:
        """As a worker with a defect would."""
        log = ManifestLog(self.store, "web", WEB)
        await log.latest()
        await log.append(manifest, kind)

    async def rewrite(self, version: int, old: bytes, new: bytes) -> None:
        """Change a manifest's text, and make its checksum fit: what only its meaning can tell."""

        def changed(data: bytes) -> bytes:
            content = unseal("", data, MANIFEST_FORMAT_VERSION)
            assert old in content, content
            return seal(MANIFEST_FORMAT_VERSION, content.replace(old, new, 1))

        await self.change(self.manifest(version), changed)


async def bucket_of_scene() -> Bucket:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    archiver = archiver_of(scene, store)
    await archiver.run_once()
    await scene.append({WEB: 4, SHOP: 2, WEB_1: 1}, epoch=2)
    await scene.append({WEB: 1}, epoch=2)
    await archiver.run_once()
    scene.clock.now_s += GRACE_S
    await archiver.collect()
    for _ in range(3):
        await scene.append({WEB: 2, SHOP: 2}, epoch=2)
    await write_index(scene)
    return Bucket(store, scene, SaidTopics())


async def write_index(scene: Scene) -> None:
    entries = [IndexedEntry(*await scene.wal.header_and_size(seq)) for seq in range(7, scene.next_seq)]
    await WalIndex(scene.store, 0).put(0, encode_block([index_row(entry) for entry in entries]))


def cut(data: bytes) -> bytes:
    return data[:-7]


def flipped(data: bytes) -> bytes:
    return data[:40] + bytes([data[40] ^ 1]) + data[41:]


# ---- what breaks it: each returns the key that has to be named


async def missing_segment(bucket: Bucket) -> str:
    key = (await bucket.segment()).key
    await bucket.store.delete(key)
    return key


async def truncated_segment(bucket: Bucket) -> str:
    key = (await bucket.segment()).key
    await bucket.change(key, cut)
    return key


async def flipped_records(bucket: Bucket) -> str:
    key = (await bucket.segment()).key
    await bucket.change(key, flipped)
    return key


async def flipped_footer(bucket: Bucket) -> str:
    key = (await bucket.segment()).key
    await bucket.change(key, lambda data: data[:-60] + bytes([data[-60] ^ 4]) + data[-59:])
    return key


async def swapped_segments(bucket: Bucket) -> str:
    first, second = await bucket.segment(0), await bucket.segment(1)
    await bucket.swap(first.key, second.key)
    return first.key


async def segment_of_another_partition(bucket: Bucket) -> str:
    """Of the same offsets and size, so that the listing tells nothing."""
    segment = await bucket.segment()
    segment_id = parse_segment_key(segment.key).segment_id
    made = encode_segment("web", WEB_1, record_table(range(segment.records)), segment_id)
    assert made.segment.size_bytes == segment.size_bytes
    await bucket.store.put(segment.key, made.body)
    return segment.key


async def altered_segment(bucket: Bucket) -> str:
    """Sound Parquet of the same offsets under the same name, and other records."""
    segment = await bucket.segment()
    rows = [(b"k", b"forged %d" % n, None) for n in range(segment.records)]
    segment_id = parse_segment_key(segment.key).segment_id
    made = encode_segment("web", WEB, record_table(range(segment.records), rows), segment_id)
    await bucket.store.put(segment.key, made.body)
    return segment.key


async def other_checksum(bucket: Bucket) -> str:
    segment = await bucket.segment()
    await bucket.rewrite(1, segment.sha256.encode(), b"0" * 64)
    return segment.key


async def another_count(bucket: Bucket) -> str:
    segment = await bucket.segment(1)
    await bucket.rewrite(1, b'"records":%d' % segment.records, b'"records":%d' % (segment.records - 1))
    return segment.key


async def another_time(bucket: Bucket) -> str:
    segment = await bucket.segment()
    old = b'"max_timestamp_ms":%d' % segment.max_timestamp_ms
    await bucket.rewrite(1, old, old + b"7")
    return segment.key


async def segment_of_another_topic(bucket: Bucket) -> str:
    segment = await bucket.segment(1)
    key = segment.key.replace("topics/web/", "topics/shop/")
    await bucket.rewrite(1, segment.key.encode(), key.encode())
    return key


async def too_high_level(bucket: Bucket) -> str:
    segment = await bucket.segment()
    await bucket.rewrite(1, b'"level":0', b'"level":3')
    return segment.key


async def duplicated_segment(bucket: Bucket) -> str:
    segment = await bucket.segment()
    key = segment.key.replace(parse_segment_key(segment.key).segment_id, "cd" * 16)
    await bucket.duplicate(segment.key, key)
    return key


async def gap_between_segments(bucket: Bucket) -> str:
    manifest = await manifest_of(bucket.store, WEB)
    await bucket.append(replace(manifest, segments=manifest.segments[1:]), ChangeKind.EXPIRE)
    return bucket.manifest(2)


async def gap_before_the_cold_end(bucket: Bucket) -> str:
    manifest = await manifest_of(bucket.store, WEB)
    await bucket.append(replace(manifest, segments=manifest.segments[:1]), ChangeKind.EXPIRE)
    return bucket.manifest(2)


async def overlapping_segments(bucket: Bucket) -> str:
    segment = await bucket.segment(1)
    await bucket.rewrite(1, b'"base_offset":%d' % segment.base_offset, b'"base_offset":%d' % (segment.base_offset - 1))
    return bucket.manifest(1)


async def truncated_manifest(bucket: Bucket) -> str:
    await bucket.change(bucket.manifest(1), cut)
    return bucket.manifest(1)


async def flipped_manifest(bucket: Bucket) -> str:
    await bucket.change(bucket.manifest(1), lambda data: data.replace(b'"cold_end":1', b'"cold_end":2'))
    return bucket.manifest(1)


async def stale_manifest(bucket: Bucket) -> str:
    """The newest version is what an older one was."""
    await bucket.duplicate(bucket.manifest(0), bucket.manifest(1))
    return bucket.manifest(1)


async def lost_manifest(bucket: Bucket) -> str:
    """The newest version is gone, and so is what the log had of its records: only a segment tells that they were."""
    key = (await manifest_of(bucket.store, WEB_1)).segments[-1].key
    await bucket.store.delete(f"{manifest_prefix('web', WEB.topic_id, 1)}{1:020d}.json")
    return key


async def lost_manifest_before_the_log(bucket: Bucket) -> str:
    await bucket.store.delete(bucket.manifest(1))
    return bucket.manifest(0)


async def swapped_manifests(bucket: Bucket) -> str:
    await bucket.swap(bucket.manifest(1), f"{manifest_prefix('web', WEB.topic_id, 1)}{1:020d}.json")
    return bucket.manifest(1)


async def forged_change(bucket: Bucket) -> str:
    await bucket.rewrite(1, b'"log_start_offset":0', b'"log_start_offset":1')
    return bucket.manifest(1)


async def forged_past(bucket: Bucket) -> str:
    """An older version is not the one that the newest follows."""
    segment = await bucket.segment()
    await bucket.rewrite(0, segment.sha256.encode(), b"0" * 64)
    return bucket.manifest(0)


async def lost_past(bucket: Bucket) -> str:
    await bucket.store.delete(bucket.manifest(0))
    return bucket.manifest(0)


async def missing_entry(bucket: Bucket) -> str:
    await bucket.store.delete(bucket.entry(8))
    return bucket.entry(8)


async def missing_first_entry(bucket: Bucket) -> str:
    await bucket.store.delete(bucket.entry(7))
    return bucket.entry(7)


async def missing_last_entry(bucket: Bucket) -> str:
    await bucket.store.delete(bucket.entry(9))
    return WalIndex(bucket.store, 0).key(0)


async def truncated_entry(bucket: Bucket) -> str:
    await bucket.change(bucket.entry(8), cut)
    return bucket.entry(8)


async def flipped_entry(bucket: Bucket) -> str:
    await bucket.change(bucket.entry(8), flipped)
    return bucket.entry(8)


async def swapped_entries(bucket: Bucket) -> str:
    await bucket.swap(bucket.entry(7), bucket.entry(8))
    return bucket.entry(7)


async def duplicated_entry(bucket: Bucket) -> str:
    await bucket.duplicate(bucket.entry(9), bucket.entry(10))
    return bucket.entry(10)


async def gap_in_offsets(bucket: Bucket) -> str:
    bucket.scene.next_offsets[SHOP] += 1
    await bucket.scene.append({SHOP: 1}, epoch=2)
    return bucket.entry(10)


async def overlap_in_offsets(bucket: Bucket) -> str:
    bucket.scene.next_offsets[SHOP] -= 1
    await bucket.scene.append({SHOP: 1}, epoch=2)
    return bucket.entry(10)


async def epoch_back(bucket: Bucket) -> str:
    await bucket.scene.append({SHOP: 1}, epoch=1)
    return bucket.entry(10)


async def epoch_without_start(bucket: Bucket) -> str:
    await bucket.scene.append({SHOP: 1}, epoch=3)
    return bucket.entry(10)


async def missing_floor(bucket: Bucket) -> str:
    await bucket.store.delete(floor_key(0))
    return floor_key(0)


async def damaged_floor(bucket: Bucket) -> str:
    await bucket.store.put(floor_key(0), b"{}")
    return floor_key(0)


async def floor_back(bucket: Bucket) -> str:
    await bucket.change(floor_key(0), lambda data: data.replace(b'"number": 7', b'"number": 3'))
    return bucket.entry(3)


async def floor_too_far(bucket: Bucket) -> str:
    """Over an entry that is not archived: its records are in neither."""
    await bucket.change(floor_key(0), lambda data: data.replace(b'"number": 7', b'"number": 8'))
    return bucket.manifest(1)


async def wrong_index(bucket: Bucket) -> str:
    entries = [IndexedEntry(*await bucket.scene.wal.header_and_size(seq)) for seq in (7, 8)]
    forged = replace(entries[1], header=replace(entries[1].header, epoch=9))
    await WalIndex(bucket.store, 0).put(0, encode_block([index_row(entries[0]), index_row(forged)]))
    return WalIndex(bucket.store, 0).key(0)


async def index_of_another_shard(bucket: Bucket) -> str:
    entry = IndexedEntry(*await bucket.scene.wal.header_and_size(7))
    foreign = replace(entry, header=replace(entry.header, shard=4))
    await WalIndex(bucket.store, 0).put(0, encode_block([index_row(foreign)]))
    return WalIndex(bucket.store, 0).key(0)


async def records_in_another_shard(bucket: Bucket) -> str:
    bucket.topics.present = scene_topics() | known("shop", SHOP.topic_id, 3)
    return bucket.entry(7)


async def partition_that_is_none(bucket: Bucket) -> str:
    bucket.topics.present = scene_topics() | known("web", WEB.topic_id, 0)
    return f"topics/web/{WEB.topic_id}/"


async def topic_under_another_name(bucket: Bucket) -> str:
    bucket.topics.present = scene_topics() | known("wet", WEB.topic_id, 0, 0)
    return f"topics/web/{WEB.topic_id}/"


async def topic_never_heard_of(bucket: Bucket) -> str:
    bucket.topics.present = known("shop", SHOP.topic_id, 0)
    return f"topics/web/{WEB.topic_id}/"


async def unfinished_copy(bucket: Bucket) -> str:
    await bucket.store.put(COPY_KEY, encode_copy_state(CopyState("s3://there", "id", whole=False)))
    return COPY_KEY


Fault = Callable[[Bucket], Awaitable[str]]
SHALLOW: list[tuple[Fault, str]] = [
    (missing_segment, "is missing, though a manifest names it"),
    (truncated_segment, "bytes, its manifest says"),
    (swapped_segments, "bytes, its manifest says"),
    (segment_of_another_partition, "other records than its name says"),
    (flipped_footer, "checksum"),
    (another_count, "records, its manifest says"),
    (another_time, "timestamps"),
    (segment_of_another_topic, "key contradicts"),
    (too_high_level, "level 3"),
    (gap_between_segments, "lacks offsets 0 to"),
    (gap_before_the_cold_end, "lacks offsets 6 to"),
    (overlapping_segments, "after offset"),
    (truncated_manifest, "envelope"),
    (flipped_manifest, "checksum"),
    (stale_manifest, "another partition or version"),
    (lost_manifest, "the manifest that named it is lost"),
    (lost_manifest_before_the_log, "the WAL begins at"),
    (swapped_manifests, "another partition or version"),
    (forged_change, "does not hash to its head"),
    (missing_entry, "is missing"),
    (missing_first_entry, "is missing"),
    (missing_last_entry, "which the log has lost"),
    (truncated_entry, "Parquet"),
    (swapped_entries, "holds entry 8"),
    (duplicated_entry, "holds entry 9"),
    (gap_in_offsets, "inv. 4"),
    (overlap_in_offsets, "inv. 4"),
    (epoch_back, "inv. 3"),
    (epoch_without_start, "no START entry"),
    (missing_floor, "without which no floor can be"),
    (damaged_floor, "format version"),
    (floor_back, "is missing"),
    (floor_too_far, "the WAL begins at"),
    (wrong_index, "otherwise"),
    (index_of_another_shard, "shard 4"),
    (records_in_another_shard, "lives in shard 3"),
    (partition_that_is_none, "has a partition 1"),
    (topic_under_another_name, "'wet'"),
    (topic_never_heard_of, "never heard"),
    (unfinished_copy, "not finished"),
]
DEEP: list[tuple[Fault, str]] = [
    (flipped_records, "checksum"),
    (altered_segment, ""),
    (other_checksum, "sha256"),
    (flipped_entry, "checksum"),
    (forged_past, "does not hash to its head"),
    (lost_past, "no block of the history has it"),
]


async def test_the_bucket_itself_is_sound() -> None:
    bucket = await bucket_of_scene()
    for deep in (False, True):
        assert await bucket.findings(deep=deep) == []


@pytest.mark.parametrize(("fault", "cause"), SHALLOW, ids=lambda value: getattr(value, "__name__", ""))
async def test_a_fault_that_listings_and_footers_show_is_named(fault: Fault, cause: str) -> None:
    bucket = await bucket_of_scene()
    key = await fault(bucket)
    for deep in (False, True):
        expect_named(await bucket.findings(deep=deep), key, cause)


@pytest.mark.parametrize(("fault", "cause"), DEEP, ids=lambda value: getattr(value, "__name__", ""))
async def test_a_fault_that_only_every_byte_shows_is_named(fault: Fault, cause: str) -> None:
    bucket = await bucket_of_scene()
    key = await fault(bucket)
    expect_named(await bucket.findings(deep=True), key, cause)


def expect_named(found: list[Finding], key: str, cause: str) -> None:
    named = [finding for finding in found if finding.key == key and cause in finding.text]
    assert [finding.severity for finding in named] == [Severity.ERROR], found


async def test_a_copy_of_a_segment_is_an_orphan() -> None:
    bucket = await bucket_of_scene()
    key = await duplicated_segment(bucket)
    (finding,) = await bucket.findings(deep=True)
    assert (finding.severity, finding.key) == (Severity.ORPHAN, key)


async def test_a_damaged_index_is_a_warning_for_it_proves_nothing() -> None:
    bucket = await bucket_of_scene()
    key = WalIndex(bucket.store, 0).key(0)
    await bucket.change(key, cut)
    (finding,) = await bucket.findings(deep=False)
    assert (finding.severity, finding.key) == (Severity.WARNING, key)


async def test_manifests_that_are_all_lost_are_told_by_where_the_log_begins() -> None:
    bucket = await bucket_of_scene()
    for place in (WEB, WEB_1):
        for segment in (await manifest_of(bucket.store, place)).segments:
            await bucket.store.delete(segment.key)
        for version in (0, 1):
            await bucket.store.delete(f"{manifest_prefix('web', WEB.topic_id, place.partition)}{version:020d}.json")
    expect_named(await bucket.findings(deep=False), bucket.entry(7), "the manifests of web are lost")


async def test_a_manifest_whose_base_is_missing_is_named() -> None:
    """A list so long that a version is the difference to an older one."""
    store = MemoryObjectStore()
    log = ManifestLog(store, "web", WEB)
    segments = []
    for offset in range(WHOLE_SEGMENTS_MAX + 2):
        made = encode_segment("web", WEB, record_table([offset]), f"{offset:032x}")
        await store.create(made.segment.key, made.body)
        segments.append(made.segment)
    for count in (len(segments) - 1, len(segments)):
        before = await log.latest()
        await log.append(replace(before, segments=tuple(segments[:count]), cold_end=count))
    verification = BucketVerification(store)
    assert [finding async for finding in verification.findings()] == []
    prefix = manifest_prefix("web", WEB.topic_id, 0)
    await store.delete(f"{prefix}{0:020d}.json")
    found = [finding async for finding in BucketVerification(store).findings()]
    expect_named(found, f"{prefix}{1:020d}.json", "difference to version 0, which is missing")


async def test_gaps_that_compaction_left_are_none() -> None:
    bucket = await bucket_of_scene()
    manifest = await manifest_of(bucket.store, WEB)
    made = encode_segment("web", WEB, record_table([1, 4, 7]), "ab" * 16)
    await bucket.store.put(made.segment.key, made.body)
    compacted = replace(manifest, segments=(made.segment, *manifest.segments[2:]), clean_end=manifest.cold_end)
    await bucket.append(compacted, ChangeKind.COMPACT)
    assert await bucket.findings(deep=True) == []
