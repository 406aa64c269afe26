"""What a manifest must be so that its segments make a log (inv. 4, 5), beyond what its codec refuses: all of it pure,
for whoever proves a bucket.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.storage.errors import Corrupt
from tidelog.storage.layout import SegmentName, parse_segment_key
from tidelog.storage.manifests.losses import lost_between, past_losses
from tidelog.storage.manifests.manifest import Manifest, Segment

LEVEL_MAX = 2
"""A segment's records are written again at most so often (write amplification 3)."""


def density_fault(manifest: Manifest) -> str | None:
    """Why the segments do not hold every offset from the log start to the cold end, though compaction has not been
    there; None if they do. Only below `clean_end`, and where a loss is recorded, may records lack."""
    expected = past_losses(manifest.losses, max(manifest.log_start_offset, manifest.clean_end))
    for segment in manifest.segments:
        if segment.base_offset > expected:
            return _gap(expected, segment.base_offset)
        expected = past_losses(manifest.losses, max(expected, segment.next_offset))
    return _gap(expected, manifest.cold_end) if expected < manifest.cold_end else None


def _gap(first: int, end: int) -> str:
    return f"lacks offsets {first} to {end - 1}, and compaction has not been there (inv. 4, 5)"


def segment_faults(manifest: Manifest, topic: str) -> Iterator[tuple[Segment, str]]:
    """Segments that cannot be what the manifest says of them, whatever their bytes are."""
    place = manifest.topic_partition
    for segment in manifest.segments:
        try:
            name = parse_segment_key(segment.key)
        except Corrupt as error:
            yield segment, error.reason
            continue
        said = SegmentName(
            *(topic, place.topic_id, place.partition),
            *(segment.base_offset, segment.last_offset, name.segment_id),
        )
        if said != name:
            text = f"is named by the manifest of {topic}-{place.partition} as offsets {segment.base_offset} to "
            yield segment, f"{text}{segment.last_offset}, which its key contradicts"
        if fault := _count_fault(segment, manifest):
            yield segment, fault
        if segment.level > LEVEL_MAX:
            yield segment, f"is of level {segment.level}; the highest is {LEVEL_MAX}"


def _count_fault(segment: Segment, manifest: Manifest) -> str | None:
    lost = lost_between(manifest.losses, segment.base_offset, segment.next_offset)
    offsets = segment.next_offset - segment.base_offset - lost
    if segment.base_offset >= manifest.clean_end and segment.records != offsets:
        return f"has {segment.records} records for {offsets} offsets, where compaction has not been (inv. 4)"
    if not 0 < segment.records <= offsets:
        return f"has {segment.records} records for {offsets} offsets"
    return None
