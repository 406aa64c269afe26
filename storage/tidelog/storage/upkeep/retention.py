"""Retention: the oldest segments of a partition are removed once they are too old or too much is kept, as in Kafka.

From the oldest on, a segment is removed while one of these holds; the first that stays ends it:

- Its largest timestamp is more than ``retention.ms`` ago. So a record with a timestamp in the future keeps its segment,
  and all later ones.
- The segments after it still have ``retention.bytes``.
- It lies wholly below the log start (`delete-records` moved that).

The first two apply if ``cleanup.policy`` has ``delete``; `UNLIMITED` turns each off. Only segments are removed: the hot
tail is neither counted nor cut, and becomes segments within minutes.

The log start moves in the same version in which the segments leave the list, so a reader sees the log before or after
(inv. 5), and no version names a deleted object: the objects are deleted a grace later, as garbage (`collect`).

Source: ``UnifiedLog.deleteOldSegments`` of Apache Kafka 4.
"""

from __future__ import annotations

from dataclasses import replace

from tidelog.storage.manifests.manifest import ChangeKind, Manifest, Segment
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.runtime import Runtime
from tidelog.storage.upkeep.rules import UNLIMITED, UpkeepRules
from tidelog.storage.upkeep.task import Place


def expired(manifest: Manifest, rules: UpkeepRules, now_ms: int) -> int:
    """How many of the oldest segments are to be removed."""
    keeps_bytes = rules.deletes and rules.retention_bytes != UNLIMITED
    left_bytes = manifest.size_bytes if keeps_bytes else 0
    for count, segment in enumerate(manifest.segments):
        left_bytes -= segment.size_bytes
        expires_at_ms = _expires_at_ms(segment, rules)
        too_old = expires_at_ms is not None and expires_at_ms <= now_ms
        too_much = keeps_bytes and left_bytes >= rules.retention_bytes
        if not (too_old or too_much or segment.next_offset <= manifest.log_start_offset):
            return count
    return len(manifest.segments)


def without_oldest(manifest: Manifest, count: int) -> Manifest:
    """`manifest` without its `count` oldest segments: the log begins at the first that is left, or at the cold end."""
    left = manifest.segments[count:]
    begins_at = left[0].base_offset if left else manifest.cold_end
    return replace(manifest, log_start_offset=max(manifest.log_start_offset, begins_at), segments=left)


class ExpireTask:
    """The `UpkeepTask` of retention. One step removes all expired segments."""

    def __init__(self, runtime: Runtime) -> None:
        self._clock = runtime.clock

    def due_at_ms(self, manifest: Manifest, rules: UpkeepRules, now_ms: int) -> int | None:
        """The exact time when the oldest segment expires; None if it never does."""
        if not manifest.segments:
            return None
        if expired(manifest, rules, now_ms):
            return now_ms
        return _expires_at_ms(manifest.segments[0], rules)

    async def run(self, place: Place, log: ManifestLog, rules: UpkeepRules) -> Manifest | None:  # noqa: ARG002
        manifest = await log.latest()
        count = expired(manifest, rules, self._clock.now_ms())
        if count == 0:
            return None
        return await log.append(without_oldest(manifest, count), ChangeKind.EXPIRE)


def _expires_at_ms(segment: Segment, rules: UpkeepRules) -> int | None:
    """When `segment` is too old: Kafka deletes segments older than ``retention.ms``, not those exactly as old."""
    if not rules.deletes or rules.retention_ms == UNLIMITED:
        return None
    return segment.max_timestamp_ms + rules.retention_ms + 1
