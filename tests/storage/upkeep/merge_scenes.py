"""A topic in a shard with small runs in a bucket, its records, and workers that merge them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
from demo.events import EventStream
from msgspec.structs import replace
from tests.storage.archive_scenes import GRACE_S, ManualClock
from tests.storage.record_tables import WEB, record_table
from tests.storage.topic_segments import decode_topic_segment

from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, TopicChange
from tidelog.storage.manifests.shard_upload import EncodedSegment
from tidelog.storage.manifests.shard_values import ChangeKind, TopicSegment
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.parquet.parquet_encoder import encode_parquet
from tidelog.storage.records import RECORD_SCHEMA, STORED_SCHEMA, WAL_SCHEMA, as_stored, from_stored
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.segments.topic_segment import (
    SEGMENT_FLAVOR,
    SegmentPlace,
    encode_header,
    sha256_of,
)
from tidelog.storage.upkeep.merge import MergeTask
from tidelog.storage.upkeep.rules import Load, UpkeepLimits, UpkeepRules
from tidelog.storage.upkeep.run_rewrite import Rewriter
from tidelog.storage.upkeep.segment_writer import spans_in

PLACE = SegmentPlace("web", WEB.topic_id, 3)
AT_ONCE = UpkeepRules(segment_ms=1)
"""All runs together become one final run."""
LIMITS = UpkeepLimits(memory_bytes=64 * 1024 * 1024, grace_s=GRACE_S)

Parts = Mapping[int, pa.Table]
"""Records (`RECORD_SCHEMA`) by partition."""


def records_at(partition: int, offsets: Sequence[int]) -> pa.Table:
    """Records (`RECORD_SCHEMA`) whose content depends on their place."""
    rows = [(b"k%d" % (at % 3) if at % 2 else None, b"%d in %d" % (at, partition), None) for at in offsets]
    return record_table(offsets, rows)


def stored(parts: Parts) -> pa.Table:
    """The records with `STORED_SCHEMA`, sorted."""
    tables = [STORED_SCHEMA.empty_table()]
    for partition, records in sorted(parts.items()):
        numbers = pa.array([partition] * records.num_rows, pa.int32())
        tables.append(as_stored(pa.table([numbers, *records.columns], schema=WAL_SCHEMA)))
    return pa.concat_tables(tables).combine_chunks()


def encoded(
    records: pa.Table,
    segment_id: str,
    run: int,
    *,
    at_ms: int = 1,
    place: SegmentPlace = PLACE,
    own_groups: bool = False,
) -> EncodedSegment:
    """A segment of level 0 with `records` (`STORED_SCHEMA`). `own_groups`: each partition has a row group of its
    own."""
    spans = tuple(spans_in(records))
    ends = list(accumulate(span.records for span in spans)) if own_groups else None
    body = encode_parquet(SEGMENT_FLAVOR, records, encode_header(place, spans), ends)
    times = records["timestamp"].cast(pa.int64()).to_numpy() // 1_000
    key, times_ms = place.key(segment_id), (int(times.min()), int(times.max()))
    segment = TopicSegment(key, run, 0, len(body), sha256_of(body), *times_ms, at_ms, spans)
    return EncodedSegment(place.topic_id, segment, body)


def log_of(store: ObjectStore) -> ShardLog:
    """The log as a new process sees it."""
    return ShardLog(store, PLACE.shard, Runtime(ManualClock()))


async def manifest_of(store: ObjectStore) -> ShardManifest:
    log = log_of(store)
    manifest = await log.latest()
    return await log.with_lists(manifest, manifest.topics)


async def topic_of(store: ObjectStore) -> TopicState:
    return (await manifest_of(store)).topics[PLACE.topic_id]


async def segments_of(store: ObjectStore) -> list[TopicSegment]:
    return list((await topic_of(store)).segments)


async def add(
    store: ObjectStore,
    parts: Parts,
    *,
    at_ms: int = 1,
    clean: bool = False,
    split: Callable[[int], int] = lambda _: 0,
    own_groups: bool = False,
) -> None:
    """Archive `parts` like the archiver: a run of level 0, and a version. `split` gives the segment of a partition."""
    log = log_of(store)
    latest = await log.with_lists(await log.latest(), [PLACE.topic_id])
    topic = latest.topics.get(PLACE.topic_id) or TopicState(PLACE.topic)
    added = []
    for number in sorted({split(partition) for partition in parts}):
        records = stored({at: records for at, records in parts.items() if split(at) == number})
        segment_id = f"{latest.version + 1:030x}{number:02x}"
        one = encoded(records, segment_id, topic.next_run, at_ms=at_ms, own_groups=own_groups)
        await store.put(one.segment.key, one.body)
        added.append(one.segment)
    states = {}
    for span in (span for segment in added for span in segment.spans):
        state = replace(topic.partition(span.partition), cold_end=span.next_offset)
        states[span.partition] = replace(state, clean_end=span.next_offset) if clean else state
    change = TopicChange(PLACE.topic, added=tuple(added), partitions=states)
    await log.append(ManifestChange(ChangeKind.ARCHIVE, {PLACE.topic_id: change}), latest)


async def filled(
    store: ObjectStore, runs: Sequence[Mapping[int, int]] = ({0: 3, 1: 2}, {0: 1}, {1: 4, 2: 5}, {0: 2})
) -> None:
    """Runs with so many records of each partition."""
    ends: dict[int, int] = {}
    for counts in runs:
        parts = {at: records_at(at, range(ends.get(at, 0), ends.get(at, 0) + count)) for at, count in counts.items()}
        await add(store, parts)
        ends = {at: ends.get(at, 0) + counts.get(at, 0) for at in {*ends, *counts}}


def merger(
    store: ObjectStore, folder: Path, *, seed: int = 0, limits: UpkeepLimits = LIMITS, load: Load = Load.IDLE
) -> MergeTask:
    """A worker like that of a new process: it knows only the bucket."""
    runtime = Runtime(ManualClock(), SeededEntropy(seed))
    return MergeTask(Rewriter(store, runtime, limits, None, folder), load=lambda: load)


async def merge(
    store: ObjectStore, folder: Path, *, seed: int = 0, rules: UpkeepRules = AT_ONCE
) -> ShardManifest | None:
    return await merger(store, folder, seed=seed).run(PLACE, log_of(store), rules)


async def records_of(store: ObjectStore) -> dict[int, pa.Table]:
    """The archived records of each partition as readers get them (`RECORD_SCHEMA`). Every segment is checked."""
    topic = await topic_of(store)
    bodies = {each.key: (await store.get(each.key)).data for each in topic.segments}
    rows = {each.key: decode_topic_segment(each, PLACE, bodies[each.key]) for each in topic.segments}
    found: dict[int, pa.Table] = {}
    for partition in topic.all_partitions:
        spans = topic.segments.spans(partition)
        tables = [rows[at.segment.key].slice(at.first_row, at.span.records) for at in spans]
        found[partition] = from_stored(pa.concat_tables(tables)).drop_columns(["partition"])
    return found


def is_empty(folder: Path) -> bool:
    """Whether no named file is left in the folder."""
    return not any(folder.iterdir())


def events(count: int, first: int = 0) -> pa.Table:
    """JSON events with offsets from `first` on."""
    chunks = list(EventStream(7).chunks(count))
    columns = [
        pa.array(range(first, first + count), pa.int64()),
        pa.chunked_array([chunk.timestamps for chunk in chunks]),
        pa.chunked_array([chunk.keys for chunk in chunks]),
        pa.chunked_array([chunk.values for chunk in chunks]),
        pa.nulls(count, RECORD_SCHEMA.field("headers").type),
    ]
    return pa.Table.from_arrays(columns, schema=RECORD_SCHEMA)


def moved(records: pa.Table, first: int) -> pa.Table:
    """`records` with offsets from `first` on."""
    offsets = pa.array(range(first, first + records.num_rows), pa.int64())
    return records.set_column(0, RECORD_SCHEMA.field("offset"), offsets)
