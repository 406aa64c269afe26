"""A bucket is broken in every way that `verify` detects; `verify` names key and cause of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace
from tests.storage import cold_faults, log_faults
from tests.storage.broken_bucket import Bucket, bucket_of_scene, cut, flipped
from tests.storage.record_tables import SHOP, WEB

from tidelog.storage.bucket.finding import Finding, Severity
from tidelog.storage.layout import list_key, shard_segment_key
from tidelog.storage.manifests.losses import Loss
from tidelog.storage.manifests.shard_manifest import ManifestChange
from tidelog.storage.manifests.shard_values import ChangeKind, ColdState
from tidelog.storage.wal.wal_index import WalIndex

Fault = Callable[[Bucket], Awaitable[str]]
SHALLOW: list[tuple[Fault, str]] = [
    (cold_faults.missing_segment, "is missing, though a manifest names it"),
    (cold_faults.missing_segment, "restore it from a copy of the bucket"),
    (cold_faults.truncated_segment, "bytes, its manifest says"),
    (cold_faults.swapped_segments, "bytes, its manifest says"),
    (cold_faults.another_count, "records for"),
    (cold_faults.too_high_level, "level 3"),
    (cold_faults.run_to_come, "of run 7"),
    (cold_faults.runs_out_of_order, "with later offsets of partition 0 than run 5"),
    (cold_faults.spans_out_of_order, "not ascending by partition"),
    (cold_faults.overlapping_segments, "holds offset"),
    (cold_faults.beyond_the_cold_end, "its cold end is"),
    (cold_faults.gap_between_segments, "lacks offsets 0 to"),
    (cold_faults.gap_before_the_cold_end, "lacks offsets 6 to"),
    (cold_faults.log_start_beyond_the_end, "after its cold end"),
    (cold_faults.missing_list, "does not exist: the archived records of web in shard 0"),
    (cold_faults.damaged_list, "another sha256"),
    (cold_faults.list_of_another_topic, "is the list of topic shop"),
    (cold_faults.truncated_manifest, ""),
    (cold_faults.flipped_manifest, "checksum"),
    (cold_faults.stale_manifest, "another shard or version"),
    (cold_faults.forged_change, "does not hash to its head"),
    (cold_faults.forged_past, "does not follow the version before it"),
    (cold_faults.lost_past, "no block of the history has it"),
    (cold_faults.truncated_history, ""),
    (cold_faults.flipped_history, "checksum"),
    (cold_faults.history_of_another_shard, "another shard or of other versions"),
    (cold_faults.history_of_other_versions, "another shard or of other versions"),
    (cold_faults.forged_history, "does not hash to its head"),
    (cold_faults.history_with_another_past, "does not hash to its head"),
    (cold_faults.missing_history, "no block of the history has it"),
    (cold_faults.overlapping_history, "the block before it those up to 0"),
    (cold_faults.history_beyond_the_newest, "the newest versions are lost"),
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
    (log_faults.lost_manifests, "without a manifest, a log begins with entry 0"),
    (log_faults.lost_newest_manifest, "is missing, with all up to entry 6"),
    (log_faults.floor_too_far, "the floor passed records that no segment has"),
    (log_faults.later_format, "is of version 9 of the format 'manifest'"),
    (log_faults.later_format, "Install that version here"),
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
    (cold_faults.flipped_footer, "checksum"),
    (cold_faults.exchanged_segment, "belongs to another topic"),
    (cold_faults.another_time, "timestamps"),
    (cold_faults.other_checksum, "sha256"),
    (cold_faults.exchanged_in_the_list, "lists 1 that are not in it"),
    (log_faults.flipped_entry, "checksum"),
]


async def test_the_bucket_itself_is_sound() -> None:
    bucket = await bucket_of_scene()
    for deep in (False, True):
        assert await bucket.findings(deep=deep) == []
    await cold_faults.listed(bucket)
    assert await bucket.findings(deep=True) == []


@pytest.mark.parametrize(("fault", "cause"), SHALLOW, ids=lambda value: getattr(value, "__name__", ""))
async def test_a_fault_that_listings_and_manifests_show_is_named(fault: Fault, cause: str) -> None:
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
    assert {finding.severity for finding in named} == {Severity.ERROR}, found


async def test_a_damaged_version_harms_nothing_that_can_be_checked_without_it() -> None:
    bucket = await bucket_of_scene()
    key = await cold_faults.truncated_manifest(bucket)
    (finding,) = await bucket.findings(deep=True)
    assert finding.key == key


@pytest.mark.parametrize("deep", [False, True])
async def test_every_damaged_version_and_every_gap_is_named(deep: bool) -> None:
    bucket = await bucket_of_scene()
    for _ in range(8):
        await bucket.append(ManifestChange(ChangeKind.SWEEP))
    for version in (2, 7):
        await bucket.change(bucket.manifest(version), cut)
    await bucket.store.delete_many([bucket.manifest(version) for version in (4, 5)])
    found = await bucket.findings(deep=deep)
    assert {finding.key for finding in found} == {bucket.manifest(version) for version in (2, 4, 7)}
    assert {finding.severity for finding in found} == {Severity.ERROR}


async def test_a_damaged_list_harms_its_topic_only() -> None:
    bucket = await bucket_of_scene()
    damaged = await cold_faults.damaged_list(bucket)
    lost = (await bucket.version(1)).topics[SHOP.topic_id].added[0].key
    await bucket.store.delete(lost)
    assert {finding.key for finding in await bucket.findings(deep=False)} == {damaged, lost}


async def test_a_copy_of_a_segment_is_an_orphan() -> None:
    bucket = await bucket_of_scene()
    key = shard_segment_key("web", WEB.topic_id, 0, "cd" * 16)
    await bucket.duplicate((await bucket.segment()).key, key)
    (finding,) = await bucket.findings(deep=True)
    assert (finding.severity, finding.key) == (Severity.ORPHAN, key)


async def test_an_orphan_with_records_beyond_the_log_shows_that_a_manifest_is_lost() -> None:
    """The last records are in a segment only, and the version that named it is gone with the log's entries."""
    bucket = await bucket_of_scene()
    key = (await bucket.segment(1)).key
    await bucket.store.delete(bucket.manifest(1))
    for seq in (7, 8, 9):
        await bucket.store.delete(bucket.entry(seq))
    expect_named(await bucket.findings(deep=False), key, "the manifest that named it is lost (inv. 5)")


async def test_an_orphan_that_is_no_segment_is_a_warning() -> None:
    bucket = await bucket_of_scene()
    key = shard_segment_key("web", WEB.topic_id, 0, "cd" * 16)
    await bucket.store.put(key, b"hello")
    (finding,) = await bucket.findings(deep=False)
    assert (finding.severity, finding.key) == (Severity.WARNING, key)


async def test_a_list_that_no_manifest_names_is_an_orphan() -> None:
    bucket = await bucket_of_scene()
    key = list_key(0, WEB.topic_id, "cd" * 16)
    await bucket.store.put(key, b"{}")
    (finding,) = await bucket.findings(deep=False)
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


async def test_gaps_below_the_clean_end_and_recorded_losses_are_no_fault() -> None:
    bucket = await bucket_of_scene()
    await bucket.alter(lambda topic: replace(topic, added=topic.added[1:]))
    cleaned = {0: ColdState(0, 11, clean_end=6)}
    lost = {1: ColdState(0, 5, losses=(Loss(0, 4, "wal/0000/1", 5),))}
    await bucket.alter(lambda topic: replace(topic, partitions={**topic.partitions, **cleaned, **lost}))
    found = await bucket.findings(deep=False)
    assert {finding.severity for finding in found} == {Severity.LOSS, Severity.ORPHAN}
    assert "offsets 0 to 3 of partition 1 are recorded as lost" in found[0].text
