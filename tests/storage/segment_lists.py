"""Manifests whose segments have no objects, for rules that read nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st
from tests.storage.record_tables import WEB

from tidelog.storage.layout import segment_key
from tidelog.storage.manifests.manifest import Manifest, Segment

TIMES_MS = st.integers(0, 60)
SIZES_BYTES = st.integers(0, 20)


def segment(base_offset: int, records: int, *, max_timestamp_ms: int = 0, size_bytes: int = 1) -> Segment:
    last_offset = base_offset + records - 1
    return Segment(
        key=segment_key("web", WEB.topic_id, WEB.partition, base_offset, last_offset, f"{base_offset:032x}"),
        base_offset=base_offset,
        last_offset=last_offset,
        records=records,
        size_bytes=size_bytes,
        min_timestamp_ms=min(0, max_timestamp_ms),
        max_timestamp_ms=max_timestamp_ms,
        sha256=f"{base_offset:064x}",
    )


def dense(shapes: Sequence[tuple[int, int, int]], log_start_offset: int = 0) -> Manifest:
    """Segments one after the other, each given as (records, largest timestamp in ms, size in bytes)."""
    manifest = Manifest(WEB)
    for records, max_timestamp_ms, size_bytes in shapes:
        added = segment(manifest.cold_end, records, max_timestamp_ms=max_timestamp_ms, size_bytes=size_bytes)
        manifest = replace(manifest, segments=(*manifest.segments, added), cold_end=added.next_offset)
    return replace(manifest, log_start_offset=min(log_start_offset, manifest.cold_end))


MANIFESTS = st.builds(
    dense, st.lists(st.tuples(st.integers(1, 5), TIMES_MS, SIZES_BYTES), max_size=8), st.integers(0, 40)
)
