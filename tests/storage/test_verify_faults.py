"""A bucket is broken in every way that `verify` detects; `verify` names key and cause of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.storage import cold_faults, log_faults
from tests.storage.archive_scenes import manifest_of
from tests.storage.broken_bucket import Bucket, bucket_of_scene, cut, flipped
from tests.storage.record_tables import WEB, WEB_1, record_table

from tidelog.storage.bucket.finding import Finding, Severity
from tidelog.storage.bucket.verify import BucketVerification
from tidelog.storage.layout import manifest_prefix
from tidelog.storage.manifests.manifest import ChangeKind
from tidelog.storage.manifests.manifest_codec import WHOLE_SEGMENTS_MAX
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.segments.segment_codec import encode_segment
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.wal.wal_index import WalIndex

Fault = Callable[[Bucket], Awaitable[str]]
SHALLOW: list[tuple[Fault, str]] = [
    (cold_faults.missing_segment, "is missing, though a manifest names it"),
    (cold_faults.truncated_segment, "bytes, its manifest says"),
    (cold_faults.swapped_segments, "bytes, its manifest says"),
    (cold_faults.segment_of_another_partition, "other records than its name says"),
    (cold_faults.flipped_footer, "checksum"),
    (cold_faults.another_count, "records, its manifest says"),
    (cold_faults.another_time, "timestamps"),
    (cold_faults.segment_of_another_topic, "key contradicts"),
    (cold_faults.too_high_level, "level 3"),
    (cold_faults.gap_between_segments, "lacks offsets 0 to"),
    (cold_faults.gap_before_the_cold_end, "lacks offsets 6 to"),
    (cold_faults.overlapping_segments, "after offset"),
    (cold_faults.truncated_manifest, "envelope"),
    (cold_faults.flipped_manifest, "checksum"),
    (cold_faults.stale_manifest, "another partition or version"),
    (cold_faults.lost_manifest, "the manifest that named it is lost"),
    (cold_faults.lost_manifest_before_the_log, "the WAL begins at"),
    (cold_faults.swapped_manifests, "another partition or version"),
    (cold_faults.forged_change, "does not hash to its head"),
    (log_faults.missing_entry, "is missing"),
    (log_faults.missing_first_entry, "is missing"),
    (log_faults.missing_last_entry, "which are missing in the log"),
    (log_faults.truncated_entry, "Parquet"),
    (log_faults.swapped_entries, "holds entry 8"),
    (log_faults.duplicated_entry, "holds entry 9"),
    (log_faults.gap_in_offsets, "inv. 4"),
    (log_faults.overlap_in_offsets, "inv. 4"),
    (log_faults.epoch_back, "inv. 3"),
    (log_faults.epoch_without_start, "no START entry"),
    (log_faults.missing_floor, "a log without a floor"),
    (log_faults.damaged_floor, "format version"),
    (log_faults.flipped_floor, "checksum"),
    (log_faults.floor_back, "is missing"),
    (log_faults.floor_too_far, "the WAL begins at"),
    (log_faults.wrong_index, "contradicts the log"),
    (log_faults.index_of_another_shard, "shard 4"),
    (log_faults.records_in_another_shard, "lives in shard 3"),
    (log_faults.partition_that_is_none, "has a partition 1"),
    (log_faults.topic_under_another_name, "'wet'"),
    (log_faults.topic_never_heard_of, "does not know"),
    (log_faults.unfinished_copy, "an unfinished copy"),
    (log_faults.flipped_copy_mark, "checksum"),
]
DEEP: list[tuple[Fault, str]] = [
    (cold_faults.flipped_records, "checksum"),
    (cold_faults.altered_segment, ""),
    (cold_faults.other_checksum, "sha256"),
    (log_faults.flipped_entry, "checksum"),
    (cold_faults.forged_past, "does not hash to its head"),
    (cold_faults.lost_past, "no block of the history has it"),
    (cold_faults.truncated_history, "envelope"),
    (cold_faults.flipped_history, "checksum"),
    (cold_faults.history_of_another_partition, "another partition or of other versions"),
    (cold_faults.history_of_other_versions, "another partition or of other versions"),
    (cold_faults.forged_history, "does not hash to its head"),
    (cold_faults.history_with_another_past, "does not hash to its head"),
    (cold_faults.missing_history, "no block of the history has it"),
    (cold_faults.overlapping_history, "the block before it those up to 0"),
    (cold_faults.history_beyond_the_newest, "later ones are lost"),
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
    key = await cold_faults.duplicated_segment(bucket)
    (finding,) = await bucket.findings(deep=True)
    assert (finding.severity, finding.key) == (Severity.ORPHAN, key)


@pytest.mark.parametrize("damage", [cut, flipped])
async def test_a_damaged_index_is_a_warning_for_it_proves_nothing(damage: Callable[[bytes], bytes]) -> None:
    bucket = await bucket_of_scene()
    key = WalIndex(bucket.store, 0).key(0)
    await bucket.change(key, damage)
    (finding,) = await bucket.findings(deep=False)
    assert (finding.severity, finding.key) == (Severity.WARNING, key)


async def test_a_bucket_whose_older_versions_are_history_is_sound() -> None:
    bucket = await bucket_of_scene()
    await cold_faults.collected(bucket)
    assert await bucket.findings(deep=True) == []


async def test_manifests_that_are_all_lost_are_reported_by_where_the_log_begins() -> None:
    bucket = await bucket_of_scene()
    for place in (WEB, WEB_1):
        for segment in (await manifest_of(bucket.store, place)).segments:
            await bucket.store.delete(segment.key)
        for version in (0, 1):
            await bucket.store.delete(f"{manifest_prefix('web', WEB.topic_id, place.partition)}{version:020d}.json")
    expect_named(await bucket.findings(deep=False), bucket.entry(7), "the manifests of web are lost")


async def test_a_manifest_whose_base_is_missing_is_named() -> None:
    """The list is so long that a version is a difference to an older one."""
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


async def test_gaps_from_compaction_are_no_fault() -> None:
    bucket = await bucket_of_scene()
    manifest = await manifest_of(bucket.store, WEB)
    made = encode_segment("web", WEB, record_table([1, 4, 7]), "ab" * 16)
    await bucket.store.put(made.segment.key, made.body)
    compacted = replace(manifest, segments=(made.segment, *manifest.segments[2:]), clean_end=manifest.cold_end)
    await bucket.append(compacted, ChangeKind.COMPACT)
    assert await bucket.findings(deep=True) == []
