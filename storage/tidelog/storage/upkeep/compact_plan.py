"""Plans compaction by key, purely, by Kafka's settings: when a pass is due, up to where, and which tombstones it
removes.

    0 ....... clean end ................... uncleanable ....... cold end
      clean: a key once      dirty           min.compaction.lag.ms

A pass covers everything up to the uncleanable end, and makes all of it clean. It is due once the dirty bytes exceed
``min.cleanable.dirty.ratio`` of what it would cover, or the oldest dirty record is older than
``max.compaction.lag.ms``. Nothing at or above the cold end is touched: that is Kafka's active segment.

A **tombstone** (a key with a null value) stays for ``delete.retention.ms`` after the first pass over it, so that
readers that began before still see it; the pass after that removes it. The manifest's `cleanings` hold the time of the
first pass by stretches of offsets, which merging does not change (ADR 0013).

Source: ``LogCleanerManager`` and ``Cleaner`` of Apache Kafka 4, KIP-354 (the longest lag), KIP-534 (tombstones).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidelog.storage.manifests.manifest import Cleaning, Manifest, Segment
from tidelog.storage.upkeep.rules import UpkeepRules

CLEANING_STEPS = 16
"""Times of cleanings are rounded up to this fraction of ``delete.retention.ms``. So a manifest keeps a few of them,
however often a partition is compacted, and a tombstone stays at most a sixteenth longer."""
CLEANINGS_MAX = 2 * CLEANING_STEPS
_NEVER_MS = 2**63 - 1


@dataclass(frozen=True)
class Stretch:
    """Offsets ``[begin_offset, end_offset)``."""

    begin_offset: int
    end_offset: int


@dataclass(frozen=True)
class CompactPlan:
    """One pass over `segments`, all below `clean_end`. It removes tombstones within `ripe`."""

    segments: tuple[Segment, ...]
    clean_end: int
    ripe: tuple[Stretch, ...]


def compaction_due_at_ms(manifest: Manifest, rules: UpkeepRules, now_ms: int) -> int | None:
    """When a pass is due, `now_ms` at the earliest; None: not before another version."""
    dirty = dirty_segments(manifest)
    if not rules.compacts or not dirty:
        return None
    first_ms = max(now_ms, _cleanable_at_ms(dirty[0], rules))
    overdue_ms = min(segment.min_timestamp_ms for segment in dirty) + rules.max_compaction_lag_ms + 1
    times_ms = [max(first_ms, overdue_ms)] if overdue_ms < _NEVER_MS else []
    dirty_bytes, cleanable_ms = 0, now_ms
    clean_bytes = manifest.size_bytes - sum(segment.size_bytes for segment in dirty)
    for segment in dirty:
        dirty_bytes += segment.size_bytes
        cleanable_ms = max(cleanable_ms, _cleanable_at_ms(segment, rules))
        if dirty_bytes > rules.min_cleanable_dirty_ratio * (clean_bytes + dirty_bytes):
            times_ms.append(cleanable_ms)
            break
    return min(times_ms, default=None)


def plan_compaction(manifest: Manifest, rules: UpkeepRules, now_ms: int) -> CompactPlan | None:
    """The pass that is due at `now_ms`; None if none is."""
    due_at_ms = compaction_due_at_ms(manifest, rules, now_ms)
    if due_at_ms is None or due_at_ms > now_ms:
        return None
    dirty = dirty_segments(manifest)
    held = next((at for at, segment in enumerate(dirty) if _cleanable_at_ms(segment, rules) > now_ms), len(dirty))
    clean = manifest.segments[: len(manifest.segments) - len(dirty)]
    return CompactPlan(
        segments=(*clean, *dirty[:held]),
        clean_end=dirty[held - 1].next_offset,
        ripe=ripe_stretches(manifest.cleanings, rules.delete_retention_ms, now_ms),
    )


def dirty_segments(manifest: Manifest) -> tuple[Segment, ...]:
    """The segments that no pass has processed yet."""
    return tuple(segment for segment in manifest.segments if segment.next_offset > manifest.clean_end)


def ripe_stretches(cleanings: Sequence[Cleaning], delete_retention_ms: int, now_ms: int) -> tuple[Stretch, ...]:
    """Where tombstones have stayed for `delete_retention_ms` after the first pass over them."""
    begins = [0, *(cleaning.end_offset for cleaning in cleanings)]
    return tuple(
        Stretch(begin_offset, cleaning.end_offset)
        for begin_offset, cleaning in zip(begins, cleanings, strict=False)
        if cleaning.at_ms + delete_retention_ms <= now_ms
    )


def cleaned(manifest: Manifest, clean_end: int, delete_retention_ms: int, now_ms: int) -> Manifest:
    """`manifest` after a pass that reached `clean_end` by `now_ms`. It keeps `CLEANINGS_MAX` cleanings: the oldest are
    dropped, and their tombstones then wait for the next one's time."""
    if clean_end <= manifest.clean_end:
        return manifest
    step_ms = max(1, delete_retention_ms // CLEANING_STEPS)
    added = Cleaning(clean_end, -(-now_ms // step_ms) * step_ms)
    before = manifest.cleanings
    if before and before[-1].at_ms == added.at_ms:
        before = before[:-1]
    kept = [
        cleaning
        for cleaning, follower in zip(before, (*before, added)[1:], strict=True)
        if not all(one.at_ms + delete_retention_ms <= now_ms for one in (cleaning, follower))
    ]
    return replace(manifest, clean_end=clean_end, cleanings=(*kept, added)[-CLEANINGS_MAX:])


def _cleanable_at_ms(segment: Segment, rules: UpkeepRules) -> int:
    """Timestamps count only if a lag is set: without one, records with timestamps in the future are compacted too."""
    return segment.max_timestamp_ms + rules.min_compaction_lag_ms if rules.min_compaction_lag_ms else 0
