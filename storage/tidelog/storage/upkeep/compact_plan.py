"""Plans compaction by key, purely, by Kafka's settings: when a pass is due, up to where, which tombstones it removes,
and which runs it rewrites.

    0 ....... clean end ................... uncleanable ....... cold end
      clean: a key once      dirty           min.compaction.lag.ms

A pass covers all partitions of a topic in a shard, in whole runs, up to the uncleanable end, and makes all of it clean.
It is due by the topic's bytes and times in the shard: once the dirty bytes exceed
``min.cleanable.dirty.ratio`` of what it would cover, or the oldest dirty record is older than
``max.compaction.lag.ms``. Nothing at or above a cold end is touched: that is Kafka's active segment.

A **tombstone** (a key with a null value) stays for ``delete.retention.ms`` after the first pass over it, so that
readers that began before still see it; the pass after that removes it. Each partition's `cleanings` hold the time of
the first pass by stretches of offsets, which merging does not change (ADR 0013).

Runs that lose records are rewritten, the oldest first, and the clean ends move with each **step**. The log is right
after each: a superseded record may be removed as long as a newer one of its key stays. But a tombstone's time must not
begin before the records that it deleted, which lie below it, are removed: records below the clean end have been
deduplicated against the whole pass.

Source: ``LogCleanerManager`` and ``Cleaner`` of Apache Kafka 4, KIP-354 (the longest lag), KIP-534 (tombstones).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from tidelog.storage.errors import Conflict
from tidelog.storage.manifests.shard_manifest import TopicChange
from tidelog.storage.manifests.shard_values import Cleaning, ColdState, TopicSegment
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.upkeep.row_set import RowSet
from tidelog.storage.upkeep.rules import UpkeepRules
from tidelog.storage.upkeep.topic_runs import (
    TopicRun,
    by_run,
    first_dirty_run,
    input_bytes,
    runs_of,
    segments_of_runs,
    size_of,
)

CLEANING_STEPS = 16
"""Times of cleanings are rounded up to this fraction of ``delete.retention.ms``. So a manifest keeps a few of them,
however often a topic is compacted, and a tombstone stays at most a sixteenth longer."""
CLEANINGS_MAX = 2 * CLEANING_STEPS
_NEVER_MS = 2**63 - 1


@dataclass(frozen=True)
class Stretch:
    """Offsets ``[begin_offset, end_offset)`` of a partition."""

    begin_offset: int
    end_offset: int


Stretches = Mapping[int, tuple[Stretch, ...]]
"""By partition."""


@dataclass(frozen=True)
class CompactPlan:
    """One pass over `segments`, whole runs in the order of the log. After it, keys are there once below `clean_ends`,
    by partition. It removes tombstones within `ripe`."""

    segments: tuple[TopicSegment, ...]
    clean_ends: Mapping[int, int]
    ripe: Stretches


@dataclass(frozen=True)
class CompactStep:
    """One version of a pass: the runs `runs`, neighbours, become one. After it, keys are there once below `clean_ends`,
    by partition. Without runs, only the clean ends move."""

    runs: Sequence[Sequence[TopicSegment]]
    clean_ends: Mapping[int, int]


def compaction_due_at_ms(topic: TopicState, rules: UpkeepRules, now_ms: int) -> int | None:
    """When a pass is due, `now_ms` at the earliest; None: not before another version."""
    dirty = dirty_runs(topic) if rules.compacts else ()
    if not dirty:
        return None
    first_ms = max(now_ms, _cleanable_at_ms(dirty[0], rules))
    overdue_ms = min(run.min_timestamp_ms for run in dirty) + rules.max_compaction_lag_ms + 1
    times_ms = [max(first_ms, overdue_ms)] if overdue_ms < _NEVER_MS else []
    dirty_bytes, cleanable_ms = 0, now_ms
    clean_bytes = size_of(topic.segments) - sum(run.size_bytes for run in dirty)
    for run in dirty:
        dirty_bytes += run.size_bytes
        cleanable_ms = max(cleanable_ms, _cleanable_at_ms(run, rules))
        if dirty_bytes > rules.min_cleanable_dirty_ratio * (clean_bytes + dirty_bytes):
            times_ms.append(cleanable_ms)
            break
    return min(times_ms, default=None)


def plan_compaction(topic: TopicState, rules: UpkeepRules, now_ms: int) -> CompactPlan | None:
    """The pass that is due at `now_ms`; None if none is."""
    due_at_ms = compaction_due_at_ms(topic, rules, now_ms)
    if due_at_ms is None or due_at_ms > now_ms:
        return None
    dirty = dirty_runs(topic)
    held = next((at for at, run in enumerate(dirty) if _cleanable_at_ms(run, rules) > now_ms), len(dirty))
    segments = tuple(segments_of_runs(topic.segments, 0, dirty[held - 1].number))
    ends = ends_of(segments)
    return CompactPlan(segments, ends, _ripe(topic, ends, rules.delete_retention_ms, now_ms))


def plan_steps(plan: CompactPlan, going: RowSet, segment_bytes: int, input_bytes_max: int) -> tuple[CompactStep, ...]:
    """The steps of a pass that removes the rows in `going`. A run that loses none keeps its objects. Neighbours that
    lose some are gathered while the stored bytes of their kept records are at most about `segment_bytes`, and what they
    take in memory is at most `input_bytes_max`."""
    runs = by_run(plan.segments)
    groups: list[range] = []
    size_bytes = held_bytes = 0
    for at, run in enumerate(runs):
        records, lost = sum(segment.records for segment in run), sum(map(going.count, run))
        if not lost:
            continue
        kept_bytes = sum(segment.size_bytes for segment in run) * (records - lost) // records
        run_bytes = input_bytes(sum(segment.raw_bytes for segment in run), records)
        size_bytes, held_bytes = size_bytes + kept_bytes, held_bytes + run_bytes
        if groups and groups[-1].stop == at and size_bytes <= segment_bytes and held_bytes <= input_bytes_max:
            groups[-1] = range(groups[-1].start, at + 1)
        else:
            groups.append(range(at, at + 1))
            size_bytes, held_bytes = kept_bytes, run_bytes
    ends = [ends_of(segment for run in runs[: group.start] for segment in run) for group in groups[1:]]
    steps = zip([runs[group.start : group.stop] for group in groups] or [()], [*ends, plan.clean_ends], strict=True)
    return tuple(CompactStep(some, clean_ends) for some, clean_ends in steps)


def replaced(latest: TopicState, inputs: Sequence[TopicSegment], added: Sequence[TopicSegment]) -> TopicChange:
    """The change that puts `added` in the place of `inputs`. Retention may have removed some of those meanwhile; raises
    `Conflict` if anything else has."""
    there = {segment.key for segment in inputs if segment.key in latest.segments}
    if any(segment.key not in there and _lives(segment, latest) for segment in inputs):
        raise Conflict("another worker replaced segments that were being compacted: start over")
    removed = tuple(segment.key for segment in inputs if segment.key in there)
    return TopicChange(latest.name, removed, tuple(segment for segment in added if _lives(segment, latest)))


def dirty_runs(topic: TopicState) -> Sequence[TopicRun]:
    """The runs that no pass has processed yet."""
    return runs_of(topic.segments, first=first_dirty_run(topic))


def ends_of(segments: Iterable[TopicSegment]) -> dict[int, int]:
    """The offset after the last record of each partition; `segments` are in the order of the log."""
    return {span.partition: span.next_offset for segment in segments for span in segment.spans}


def _ripe(topic: TopicState, ends: Mapping[int, int], delete_retention_ms: int, now_ms: int) -> Stretches:
    """Where tombstones are removed. The last record of each partition always stays, so that no reader reaches an offset
    after which nothing follows: another partition may have made the pass due."""
    found = {}
    for partition, end in ends.items():
        cleanings = topic.partition(partition).cleanings
        ripe = ripe_stretches(cleanings, delete_retention_ms, now_ms) if cleanings else ()
        cut = (Stretch(one.begin_offset, min(one.end_offset, end - 1)) for one in ripe)
        if left := tuple(one for one in cut if one.begin_offset < one.end_offset):
            found[partition] = left
    return found


def ripe_stretches(cleanings: Sequence[Cleaning], delete_retention_ms: int, now_ms: int) -> tuple[Stretch, ...]:
    """Where tombstones have stayed for `delete_retention_ms` after the first pass over them."""
    begins = [0, *(cleaning.end_offset for cleaning in cleanings)]
    return tuple(
        Stretch(begin_offset, cleaning.end_offset)
        for begin_offset, cleaning in zip(begins, cleanings, strict=False)
        if cleaning.at_ms + delete_retention_ms <= now_ms
    )


def cleaned_states(
    topic: TopicState, clean_ends: Mapping[int, int], rules: UpkeepRules, now_ms: int
) -> dict[int, ColdState]:
    """The states of partitions that change with a pass that reached `clean_ends` by `now_ms`."""
    before = {partition: topic.partition(partition) for partition in clean_ends}
    after = {
        partition: cleaned(state, clean_ends[partition], rules.delete_retention_ms, now_ms)
        for partition, state in before.items()
    }
    return {partition: state for partition, state in after.items() if state is not before[partition]}


def cleaned(state: ColdState, clean_end: int, delete_retention_ms: int, now_ms: int) -> ColdState:
    """The state of a partition after a pass that reached `clean_end` by `now_ms`. It keeps `CLEANINGS_MAX` cleanings:
    the oldest are dropped, and their tombstones then wait for the next one's time."""
    if clean_end <= state.clean_end:
        return state
    step_ms = max(1, delete_retention_ms // CLEANING_STEPS)
    added = Cleaning(clean_end, -(-now_ms // step_ms) * step_ms)
    before = state.cleanings
    if before and before[-1].at_ms == added.at_ms:
        before = before[:-1]
    kept = [
        cleaning
        for cleaning, follower in zip(before, (*before, added)[1:], strict=True)
        if not all(one.at_ms + delete_retention_ms <= now_ms for one in (cleaning, follower))
    ]
    return replace(state, clean_end=clean_end, cleanings=(*kept, added)[-CLEANINGS_MAX:])


def _lives(segment: TopicSegment, topic: TopicState) -> bool:
    """Whether a record of it is at or above its partition's log start."""
    return any(span.next_offset > topic.partition(span.partition).log_start_offset for span in segment.spans)


def _cleanable_at_ms(run: TopicRun, rules: UpkeepRules) -> int:
    """Timestamps count only if a lag is set: without one, records with timestamps in the future are compacted too."""
    return run.max_timestamp_ms + rules.min_compaction_lag_ms if rules.min_compaction_lag_ms else 0
