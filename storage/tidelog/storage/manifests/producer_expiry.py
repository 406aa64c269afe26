"""Finds the producers' marks in a manifest that are older than a given time.

A mark has no time of its own, but each segment has `archived_at_ms`, when its first record was archived. A batch below
a segment was written before that. So if a segment is older than the given time, all marks below it are older, too.
Other marks are kept, including those in the last segment: marks expire late, never too soon.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.storage.manifests.manifest import Segment
from tidelog.storage.wal.wal_entry import ProducerMark


def living_marks(
    marks: Sequence[ProducerMark], segments: Sequence[Segment], before_ms: int
) -> tuple[ProducerMark, ...]:
    """`marks` without those that are certainly older than `before_ms`."""
    if not marks:
        return ()
    old = (segment.base_offset for segment in reversed(segments) if 0 < segment.archived_at_ms < before_ms)
    oldest_kept = next(old, 0)
    return tuple(mark for mark in marks if mark.base_offset >= oldest_kept)
