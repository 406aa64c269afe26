"""A partition with small segments in a bucket, its records, and workers that merge them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from tests.storage.archive_scenes import GRACE_S, ManualClock
from tests.storage.record_tables import WEB, record_table

from tidelog.storage.manifests.manifest import Manifest
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.records import RECORD_SCHEMA
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.segments.segment_codec import decode_segment, encode_segment
from tidelog.storage.upkeep.merge import MergeTask
from tidelog.storage.upkeep.rules import UpkeepLimits, UpkeepRules
from tidelog.storage.upkeep.task import Place

PLACE = Place("web", WEB)
AT_ONCE = UpkeepRules(segment_ms=1)
"""All segments together become one final segment."""
LIMITS = UpkeepLimits(memory_bytes=16 * 1024 * 1024, grace_s=GRACE_S)


def manifest_log(store: ObjectStore) -> ManifestLog:
    return ManifestLog(store, PLACE.topic, PLACE.topic_partition)


async def manifest_of(store: ObjectStore) -> Manifest:
    return await manifest_log(store).latest()


async def add(store: ObjectStore, records: pa.Table, *, at_ms: int = 1, clean_end: int = 0) -> Manifest:
    """Archive `records` like the archiver: a segment of level 0, and a version."""
    log = manifest_log(store)
    latest = await log.latest()
    encoded = encode_segment("web", WEB, records, f"{latest.version + 1:032x}")
    await store.put(encoded.segment.key, encoded.body)
    segment = replace(encoded.segment, archived_at_ms=at_ms)
    return await log.append(
        replace(
            latest,
            segments=(*latest.segments, segment),
            cold_end=segment.next_offset,
            clean_end=max(clean_end, latest.clean_end),
        )
    )


async def filled(store: ObjectStore, counts: Sequence[int] = (3, 1, 4, 2)) -> pa.Table:
    """Make segments with the given numbers of records; return all records."""
    offset = 0
    for count in counts:
        await add(store, record_table(range(offset, offset + count)))
        offset += count
    return record_table(range(offset))


def merger(store: ObjectStore, folder: Path, *, seed: int = 0, limits: UpkeepLimits = LIMITS) -> MergeTask:
    """A worker like that of a new process: it knows only the bucket."""
    return MergeTask(store, Runtime(ManualClock(), SeededEntropy(seed)), limits, None, folder)


async def merge(store: ObjectStore, folder: Path, *, seed: int = 0, rules: UpkeepRules = AT_ONCE) -> Manifest | None:
    return await merger(store, folder, seed=seed).run(PLACE, manifest_log(store), rules)


async def records_of(store: ObjectStore) -> pa.Table:
    """The archived records of the partition as readers get them."""
    tables = [RECORD_SCHEMA.empty_table()]
    for segment in (await manifest_of(store)).segments:
        tables.append(decode_segment(segment.key, (await store.get(segment.key)).data))
    return pa.concat_tables(tables)


def is_empty(folder: Path) -> bool:
    """Whether no named file is left in the folder."""
    return not any(folder.iterdir())
