"""Segments of a made-up topic in a folder, and the answer to ``/v1/topics/{topic}/log`` that describes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.read.topic_log import described_shard
from tidelog.storage.manifests.segment_columns import columns_of
from tidelog.storage.manifests.shard_manifest import ShardManifest
from tidelog.storage.manifests.shard_values import ColdState, SegmentSpan, TopicSegment
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.parquet.parquet_encoder import encode_parquet
from tidelog.storage.records import STORED_SCHEMA
from tidelog.storage.segments.topic_segment import SEGMENT_FLAVOR, SegmentPlace, encode_header, sha256_of
from tidelog.wire.topic_log import TopicLogDescription, TopicLogRequest

TOPIC, TOPIC_ID = "web", "70" * 16
PLACE = SegmentPlace(TOPIC, TOPIC_ID, 0)
Offsets = Mapping[int, Sequence[int]]
"""By partition, ascending."""


def time_ms(partition: int, offset: int) -> int:
    return 1_700_000_000_000 + 10 * offset + partition


@dataclass(frozen=True)
class Ends:
    """The ends of a partition."""

    log_start: int
    cold_end: int
    high_watermark: int


def table_of(offsets: Offsets) -> pa.Table:
    """Records whose value is ``<partition>-<offset>``."""
    places = [(partition, offset) for partition in sorted(offsets) for offset in offsets[partition]]
    columns = {
        "partition": [partition for partition, _ in places],
        "offset": [offset for _, offset in places],
        "timestamp": [time_ms(*place) * 1_000 for place in places],
        "key": [None if offset % 3 else b"k" for _, offset in places],
        "value": [b"%d-%d" % place for place in places],
        "headers": [None for _ in places],
    }
    return pa.table([pa.array(columns[f.name], f.type) for f in STORED_SCHEMA], schema=STORED_SCHEMA)


def with_noise(records: pa.Table, value_bytes: int) -> pa.Table:
    """`records` with values of random bytes, which do not compress."""
    noise = np.random.default_rng(1).integers(0, 256, records.num_rows * value_bytes, np.uint8).tobytes()
    edges = np.arange(records.num_rows + 1, dtype=np.int32) * value_bytes
    values = pa.Array.from_buffers(pa.binary(), records.num_rows, [None, pa.py_buffer(edges), pa.py_buffer(noise)])
    return records.set_column(records.schema.get_field_index("value"), STORED_SCHEMA.field("value"), values)


def write_segment(
    root: Path,
    offsets: Offsets,
    run: int,
    *,
    level: int = 0,
    ends: Sequence[int] | None = None,
    table: pa.Table | None = None,
) -> TopicSegment:
    """Write a segment below `root`. `ends`: the rows before which row groups end."""
    records = table_of(offsets) if table is None else table
    spans = [SegmentSpan(p, offsets[p][0], offsets[p][-1], len(offsets[p]), 9) for p in sorted(offsets)]
    body = encode_parquet(SEGMENT_FLAVOR, records, encode_header(PLACE, spans), ends)
    key = PLACE.key(f"{run:032x}")
    path = root / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    times = [time_ms(p, offset) for p in offsets for offset in (offsets[p][0], offsets[p][-1])]
    place = key, run, level, len(body), sha256_of(body)
    return TopicSegment(*place, min(times), max(times), 0, tuple(spans))


def manifest_of(segments: Sequence[TopicSegment], ends: Mapping[int, Ends], version: int = 7) -> ShardManifest:
    states = {number: ColdState(end.log_start, end.cold_end) for number, end in ends.items()}
    return ShardManifest(
        0, version, topics={TOPIC_ID: TopicState(TOPIC, added=columns_of(segments), partitions=states)}
    )


def log_of(
    root: Path,
    segments: Sequence[TopicSegment],
    ends: Mapping[int, Ends],
    request: TopicLogRequest | None = None,
) -> TopicLogDescription:
    """The whole answer of a broker on the store `root`, in one page."""
    topic = Topic(TOPIC, TOPIC_ID, (0,) * (max(ends) + 1))
    request = request or TopicLogRequest()
    marks = {number: end.high_watermark for number, end in ends.items()}
    page = described_shard(topic, manifest_of(segments, ends), request, marks)
    assert page.next is None
    return msgspec.structs.replace(page, store=f"file://{root}")
