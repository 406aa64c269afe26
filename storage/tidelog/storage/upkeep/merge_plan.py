"""Plans merging, purely, from the manifest: which neighbouring segments of a partition become one, and when.

The archiver writes one small segment per pass. These are merged upward in two levels:

    level 0   written by the archiver
    level 1   a fan-in of level 0: intermediate
    level 2   final: `segment_bytes`, or all of `segment_ms`; never merged again

A merge only takes segments below level 2 and makes one of a higher level than all its inputs. So a record is written by
the archiver and at most twice again: **write amplification is at most 3**, by construction.

When a merge is due
-------------------
1. Neighbours that are not final reach `segment_bytes` together: they become a final segment. If enough level 0 arrives
   quickly, it skips the level in between, and is written twice in all.
2. The oldest of them was archived `segment_ms` ago: all of them become a final segment, whatever their size (as Kafka
   rolls its active segment).
3. There is a fan-in of level 0: it becomes a segment of level 1, unless it has a fourth of `segment_bytes` already, and
   waits for rule 1.

The number of small segments in a partition ------------------------------------------- Of *N* level-0 segments that
make a final one, a fan-in of *f* leaves at most *f* of level 0 and *N / f* of level 1. The sum is smallest, 2
sqrt(*N*), for *f* = sqrt(*N*). *N* is the number that fits into `segment_bytes`, or that arrives within `segment_ms`,
whichever is less, estimated from the present ones. Example: a partition with one segment of 2 KB every ten minutes has
1,008 in a week, so *f* is 32, and there are at most about 64. *f* is at least 16 and at most `FAN_IN_MAX`; rule 3's
exception leaves 64 of level 0. If the estimate was wrong, `FAN_IN_MAX` of level 1 become a final segment.

No merge crosses the manifest's clean end: below it compaction left gaps, above it none are allowed (inv. 4).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from tidelog.storage.errors import Conflict
from tidelog.storage.manifests.manifest import Manifest, Segment
from tidelog.storage.upkeep.rules import UpkeepRules

FINAL_LEVEL = 2
FAN_IN_MIN = 16
FAN_IN_MAX = 512
WAITING_SHARE = 4
"""Level 0 with a fourth of a final segment's bytes waits for the rest."""

Run = Sequence[Segment]
"""Neighbours that are not final, all on the same side of the clean end."""


@dataclass(frozen=True)
class Merge:
    """At least two neighbours, `segments`, become one of `level`."""

    segments: tuple[Segment, ...]
    level: int


def merge_due_at_ms(manifest: Manifest, rules: UpkeepRules, now_ms: int) -> int | None:
    """When a merge is due, `now_ms` at the earliest; None: not before another version."""
    runs = [run for run in _runs(manifest, rules) if len(run) > 1]
    if _due(manifest, runs, rules, now_ms):
        return now_ms
    return min((_since_ms(run) + rules.segment_ms for run in runs), default=None)


def plan_merge(manifest: Manifest, rules: UpkeepRules, now_ms: int) -> Merge | None:
    """The merge that is due at `now_ms`, that of the oldest records first; None if none is."""
    return _due(manifest, [run for run in _runs(manifest, rules) if len(run) > 1], rules, now_ms)


def merged(latest: Manifest, inputs: Sequence[Segment], output: Segment) -> tuple[Segment, ...]:
    """The segments of `latest` with `output` in the place of `inputs`. Raises `Conflict` if another worker has taken
    one of them away, or moved the clean end between them: start over."""
    keys = [segment.key for segment in latest.segments]
    first = keys.index(inputs[0].key) if inputs[0].key in keys else 0
    if keys[first : first + len(inputs)] != [segment.key for segment in inputs]:
        raise Conflict("another worker replaced segments that were being merged: start over")
    if inputs[0].base_offset < latest.clean_end < inputs[-1].next_offset:
        raise Conflict("compaction reached segments that were being merged: start over")
    return (*latest.segments[:first], output, *latest.segments[first + len(inputs) :])


def _runs(manifest: Manifest, rules: UpkeepRules) -> Iterator[Run]:
    """From the oldest to the newest. One pass, with almost no work for final segments, because there may be 100,000."""
    small = [
        (at, segment)
        for at, segment in enumerate(manifest.segments)
        if segment.level < FINAL_LEVEL and segment.size_bytes < rules.segment_bytes
    ]
    # Neighbours have the same difference between their places in the manifest and in `small`.
    for _, neighbours in groupby(enumerate(small), lambda found: found[1][0] - found[0]):
        run = [segment for _, (_, segment) in neighbours]
        for _, side in groupby(run, lambda segment: _side(segment, manifest.clean_end)):
            yield list(side)


def _side(segment: Segment, clean_end: int) -> int:
    """0 below the clean end, 2 above it; 1 for a segment across it, which is not merged."""
    return 0 if segment.next_offset <= clean_end else 2 if segment.base_offset >= clean_end else 1


def _due(manifest: Manifest, runs: Sequence[Run], rules: UpkeepRules, now_ms: int) -> Merge | None:
    if not runs:
        return None
    ratio = _final_ratio(manifest)
    merges = (_full(run, rules, ratio) or _aged(run, rules, now_ms) or _gathered(run, rules, ratio) for run in runs)
    return next((merge for merge in merges if merge), None)


def _full(run: Run, rules: UpkeepRules, ratio: float) -> Merge | None:
    size_bytes = 0.0
    for count, segment in enumerate(run, start=1):
        size_bytes += _final_bytes(segment, ratio)
        if size_bytes >= rules.segment_bytes and count > 1:
            return Merge(tuple(run[:count]), FINAL_LEVEL)
    return None


def _aged(run: Run, rules: UpkeepRules, now_ms: int) -> Merge | None:
    return Merge(tuple(run), FINAL_LEVEL) if now_ms >= _since_ms(run) + rules.segment_ms else None


def _gathered(run: Run, rules: UpkeepRules, ratio: float) -> Merge | None:
    if sum(segment.level for segment in run) >= FAN_IN_MAX:
        return Merge(tuple(run), FINAL_LEVEL)
    for level, neighbours in groupby(run, lambda segment: segment.level):
        stretch = tuple(neighbours)[:FAN_IN_MAX]
        if level > 0 or len(stretch) < FAN_IN_MIN or len(stretch) < fan_in(stretch, rules):
            continue
        if sum(_final_bytes(segment, ratio) for segment in stretch) * WAITING_SHARE < rules.segment_bytes:
            return Merge(stretch, level + 1)
    return None


def fan_in(stretch: Sequence[Segment], rules: UpkeepRules) -> int:
    """How many segments like those of `stretch` (at least two) are merged into one of level 1."""
    count = len(stretch)
    fitting = rules.segment_bytes * count / max(1, sum(segment.size_bytes for segment in stretch))
    spent_ms = stretch[-1].archived_at_ms - stretch[0].archived_at_ms
    coming = rules.segment_ms * (count - 1) / spent_ms if spent_ms > 0 else math.inf
    return min(FAN_IN_MAX, max(FAN_IN_MIN, math.ceil(math.sqrt(min(fitting, coming)))))


def _final_ratio(manifest: Manifest) -> float:
    """Stored bytes per raw byte in the newest final segment, which is compressed better than others; 0: unknown."""
    final = next((segment for segment in reversed(manifest.segments) if segment.level == FINAL_LEVEL), None)
    return final.size_bytes / final.raw_bytes if final and final.raw_bytes else 0.0


def _final_bytes(segment: Segment, ratio: float) -> float:
    """The estimated stored bytes of the records of `segment` in a final one."""
    return min(segment.size_bytes, segment.raw_bytes * ratio) if ratio and segment.raw_bytes else segment.size_bytes


def _since_ms(run: Run) -> int:
    """When the oldest record of `run` was archived. Record timestamps may have any value, so they are used only if that
    is unknown."""
    return run[0].archived_at_ms or run[0].max_timestamp_ms
