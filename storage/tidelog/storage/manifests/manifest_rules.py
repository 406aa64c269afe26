"""Rules that a manifest must keep so that its segments form a log (inv. 4, 5), beyond those of its codec. All functions
are pure; `bucket verify` uses them.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.storage.errors import Corrupt
from tidelog.storage.layout import SegmentName, parse_segment_key
from tidelog.storage.manifests.losses import lost_between, past_losses
from tidelog.storage.manifests.manifest import Manifest, Segment

LEVEL_MAX = 2
"""How often a record may be written again (write amplification 3)."""


def density_fault(manifest: Manifest) -> str | None:
    """Why the segments lack an offset between the log start and the cold end that compaction did not remove; None if
    they lack none. Records may be missing only below `clean_end`, and where a loss is recorded."""
    expected = past_losses(manifest.losses, max(manifest.log_start_offset, manifest.clean_end))
    for segment in manifest.segments:
        if segment.base_offset > expected:
            return _gap(expected, segment.base_offset)
        expected = past_losses(manifest.losses, max(expected, segment.next_offset))
    return _gap(expected, manifest.cold_end) if expected < manifest.cold_end else None


def _gap(first: int, end: int) -> str:
    return f"lacks offsets {first} to {end - 1}, which compaction did not remove (inv. 4, 5)"


def segment_faults(manifest: Manifest, topic: str) -> Iterator[tuple[Segment, str]]:
    """Segments that cannot be as the manifest describes them, whatever their bytes are."""
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
        return f"has {segment.records} records for {offsets} offsets, above the clean end (inv. 4)"
    if not 0 < segment.records <= offsets:
        return f"has {segment.records} records for {offsets} offsets"
    return None
