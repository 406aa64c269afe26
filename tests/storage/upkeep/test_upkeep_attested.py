"""All upkeep tasks together, for weeks: the bucket stays tidy, passes `verify`, and each attestation that was kept is
an ancestor of the last one."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from tests.storage.archive_scenes import keys
from tests.storage.upkeep.compaction_scenes import GRACE_S, PLACE, Partition, Write

from tidelog.storage.bucket.attest import BucketAttestation, PartitionHead
from tidelog.storage.bucket.finding import Severity
from tidelog.storage.bucket.manifest_replay import steps_up_to
from tidelog.storage.bucket.verify import BucketVerification
from tidelog.storage.layout import segment_prefix
from tidelog.storage.manifests.manifest import ChangeKind
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.upkeep.collect import CollectTask
from tidelog.storage.upkeep.rules import DAY_MS, UpkeepLimits, UpkeepRules
from tidelog.storage.upkeep.upkeep import Upkeep
from tidelog.storage.upkeep.upkeep_tasks import upkeep_tasks

DELETE = UpkeepRules(retention_ms=5 * DAY_MS, segment_bytes=6_000, segment_ms=DAY_MS // 2)
COMPACT = UpkeepRules(deletes=False, compacts=True, delete_retention_ms=DAY_MS // 4, min_cleanable_dirty_ratio=0.6)
ALWAYS = {ChangeKind.ARCHIVE, ChangeKind.COLLECT}
DAYS, APPENDS_A_DAY = 12, 8
BLOCK_VERSIONS = 8


def upkeep_of(partition: Partition, folder: Path) -> Upkeep:
    """The tasks as a worker has them, with smaller blocks of history."""
    runtime = Runtime(partition.clock, SeededEntropy(1))
    limits = UpkeepLimits(memory_bytes=1 << 20, grace_s=GRACE_S)
    tasks = upkeep_tasks(partition.store, runtime, limits, None, folder)
    collect = CollectTask(partition.store, runtime, GRACE_S, block_versions=BLOCK_VERSIONS)
    return Upkeep([*(task for task in tasks if not isinstance(task, CollectTask)), collect], runtime)


async def attested(store: ObjectStore, earlier: tuple[PartitionHead, ...] | None = None) -> tuple[PartitionHead, ...]:
    told = [told async for told in BucketAttestation(store, earlier).partitions()]
    heads = tuple(head for head in told if isinstance(head, PartitionHead))
    assert len(heads) == len(told), told
    return heads


async def weeks(partition: Partition, folder: Path, rules: UpkeepRules) -> list[tuple[PartitionHead, ...]]:
    """Records arrive and upkeep runs; return the attestations, one per day."""
    random, kept = Random(1), []
    upkeep = upkeep_of(partition, folder)
    for _ in range(DAYS):
        for _ in range(APPENDS_A_DAY):
            writes: list[Write] = [
                (b"key %d" % random.randrange(40), random.randbytes(30) if random.random() > 0.1 else None)
                for _ in range(60)
            ]
            await partition.append(writes)
            log = ManifestLog(partition.store, PLACE.topic, PLACE.topic_partition, partition.clock)
            await upkeep.tend(PLACE, log, rules)
            partition.clock.now_s += DAY_MS / 1_000 / APPENDS_A_DAY
        kept.append(await attested(partition.store))
    for _ in range(4):
        await upkeep.tend(PLACE, log, rules)
        partition.clock.now_s += GRACE_S
    return kept


@pytest.mark.parametrize(
    ("rules", "kinds"),
    [(DELETE, ALWAYS | {ChangeKind.MERGE, ChangeKind.EXPIRE}), (COMPACT, ALWAYS | {ChangeKind.COMPACT})],
    ids=["delete", "compact"],
)
async def test_weeks_of_upkeep_are_attested_and_leave_nothing_behind(
    tmp_path: Path, rules: UpkeepRules, kinds: set[ChangeKind]
) -> None:
    partition = Partition(tmp_path)
    kept = await weeks(partition, tmp_path, rules)
    newest = await partition.manifest()
    assert {step.change.kind async for _, step in steps_up_to(partition.store, PLACE, newest.version)} == kinds
    for earlier in kept:
        await attested(partition.store, earlier)
    findings = [finding async for finding in BucketVerification(partition.store, deep=True).findings()]
    assert [finding for finding in findings if finding.severity is not Severity.WARNING] == []
    place = PLACE.topic_partition
    objects = await keys(partition.store, segment_prefix(PLACE.topic, place.topic_id, place.partition))
    assert set(objects) == {segment.key for segment in newest.segments}
    assert newest.garbage == ()
    assert min([version async for version in partition.log().versions()]) > newest.version - 2 * BLOCK_VERSIONS
