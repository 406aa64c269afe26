"""Plans merging, purely, from the manifest: which neighbouring runs of a topic in a shard become one, and when.

The archiver writes one run per pass. Small ones are merged upward in two levels:

    level    written by          compression        CPU s a GB raw   stored
    0        the archiver        as in the WAL      0.5 to 5         0.11     copied or, with many partitions, encoded
    1        a fan-in of 0       as before          0.7 to 4         0.11     intermediate: copied or, if small, encoded
    2        a final merge       zstd 10            16               0.09     never merged again
    2        the same, if quiet  zstd 8             11               0.09     never merged again
    2        the same, if busy   as before          0.7 to 4         0.11     copied or, if small, encoded

A merge takes whole runs below level 2 and makes one run of a higher level than all its
inputs. So a record is written by the archiver and at most twice again: **write amplification is at most 3**, by
construction.

A run of level 0 is *large* if it has a fourth of `segment_bytes`. To merge large runs saves few requests and, while the
broker is busy, no bytes, at ten times the cost of archiving. So they wait until the broker has been idle for long: then
they become final, and smaller by 15 %. A merge ends once it has `segment_bytes`, so a load that returns waits for one.

When a merge is due
-------------------
1. Neighbours that are not final reach `segment_bytes` together: they become a final run. If enough level 0 arrives
   quickly, it skips the level in between, and is written twice in all.
2. The oldest of them was archived `segment_ms` ago: they become final runs of any size (as Kafka rolls its
   active segment); a single run only if it is large.
3. There is a fan-in of level 0: it becomes a run of level 1, unless it has a fourth of `segment_bytes` already, and
   waits for rule 1.
4. The broker is idle: neighbours up to the last large run become final.

Unless the broker is idle, rules 1 and 3 leave out large runs and what lies on their other side, until `LARGE_RUNS_MAX`
of them wait. Beyond that, rules 1 and 4 apply to the oldest ones as if it were idle, so that a plan stays quick.

The number of small runs
------------------------
Of *N* level-0 runs that make a final one, a fan-in of *f* leaves at most *f* of level 0 and *N / f* of level 1. The sum
is smallest, 2 sqrt(*N*), for *f* = sqrt(*N*). *N* is the number that fits into `segment_bytes`, or that arrives within
`segment_ms`, whichever is less, estimated from the present ones. Example: a topic with 2 KB every ten minutes has 1,008
runs in a week, so *f* is 32, and there are at most about 64. *f* is at least 16 and at most `FAN_IN_MAX`; rule 3's
exception leaves 64 of level 0. If the estimate was wrong, `FAN_IN_MAX` of level 1 become a final run.

A merge holds a row group of each input in memory, so it takes as many runs as have room there (`merge_rows`). Where
more runs than that wait, those with room are gathered at once, and level 1 becomes final when it fills the memory.

No merge crosses the end of the runs that compaction has cleaned: before it there are gaps, after it none are allowed
(inv. 4).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

from tidelog.storage.errors import Conflict
from tidelog.storage.manifests.shard_manifest import TopicChange
from tidelog.storage.manifests.shard_values import TopicSegment
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.upkeep.rules import UpkeepRules
from tidelog.storage.upkeep.topic_runs import (
    FINAL_LEVEL,
    TopicRun,
    are_neighbours,
    final_ratio,
    first_dirty_run,
    input_bytes,
    runs_of,
    segments_of_runs,
)

FAN_IN_MIN = 16
FAN_IN_MAX = 512
WAITING_SHARE = 4
"""Level 0 with a fourth of a final segment's bytes waits for the rest. A single run with that is large."""
LARGE_RUNS_MAX = 2_048
"""So many large runs wait for an idle broker. A plan looks at each, and takes 10 ms for so many."""

Runs = Sequence[TopicRun]
"""Neighbours that are not final, all cleaned or none."""


@dataclass(frozen=True)
class Merge:
    """The runs `first_run` to `last_run` become one of `level`."""

    first_run: int
    last_run: int
    level: int


@dataclass(frozen=True)
class MergePolicy:
    """The rules of a topic, what all inputs may take in memory, the ratio of stored bytes to raw bytes in final
    segments, and whether large runs are merged."""

    rules: UpkeepRules
    input_bytes_max: int
    ratio: float = 0.0
    idle: bool = False

    def final_bytes(self, run: TopicRun) -> float:
        """The estimated stored bytes of the records of `run` in a final segment."""
        return min(run.size_bytes, run.raw_bytes * self.ratio) if self.ratio and run.raw_bytes else run.size_bytes

    def with_room(self, runs: Runs) -> Runs:
        """The first of `runs`, at least two, of which a row group each fits in memory."""
        held_bytes = 0
        for count, run in enumerate(runs[:FAN_IN_MAX]):
            held_bytes += input_bytes(run.raw_bytes, run.records)
            if held_bytes > self.input_bytes_max:
                return runs[: max(2, count)]
        return runs[:FAN_IN_MAX]


def merge_due_at_ms(
    topic: TopicState, rules: UpkeepRules, input_bytes_max: int, now_ms: int, *, idle: bool
) -> int | None:
    """When a merge is due, `now_ms` at the earliest; None: not before another version, or before `idle` changes."""
    stretches = list(mergeable(topic, rules))
    if _due(topic, stretches, MergePolicy(rules, input_bytes_max, idle=idle), now_ms):
        return now_ms
    aging = (runs for runs in stretches if len(runs) > 1 or _is_large(runs[0], rules))
    return min((_since_ms(runs) + rules.segment_ms for runs in aging), default=None)


def plan_merge(topic: TopicState, rules: UpkeepRules, input_bytes_max: int, now_ms: int, *, idle: bool) -> Merge | None:
    """The merge that is due at `now_ms`, that of the oldest records first; None if none is. `idle`: whether the broker
    has been idle for long."""
    return _due(topic, list(mergeable(topic, rules)), MergePolicy(rules, input_bytes_max, idle=idle), now_ms)


def merged(latest: TopicState | None, inputs: Sequence[TopicSegment], outputs: Sequence[TopicSegment]) -> TopicChange:
    """The change that puts `outputs` in the place of `inputs`. Raises `Conflict` if another worker has taken one of
    them away, or cleaned a part of them: start over."""
    if latest is None:
        raise Conflict("the topic left the shard while its segments were being merged")
    first, last = inputs[0].run, inputs[-1].run
    keys = [segment.key for segment in inputs]
    if [segment.key for segment in segments_of_runs(latest.segments, first, last)] != keys:
        raise Conflict("another worker replaced segments that were being merged: start over")
    if first < first_dirty_run(latest) <= last:
        raise Conflict("compaction reached segments that were being merged: start over")
    return TopicChange(latest.name, tuple(keys), tuple(outputs))


def mergeable(topic: TopicState, rules: UpkeepRules) -> Iterator[Runs]:
    """Stretches of neighbouring runs that merging may make one of, from the oldest to the newest. A rewrite by
    compaction that is large enough stays as it is: the next compaction writes it again."""
    dirty_from = first_dirty_run(topic)
    stretch: list[TopicRun] = []
    for run in runs_of(topic.segments, below_level=FINAL_LEVEL):
        before = stretch[-1].number if stretch else run.number
        apart = (before < dirty_from) != (run.number < dirty_from) or not are_neighbours(
            topic.segments, before, run.number
        )
        if stretch and apart:
            yield stretch
            stretch = []
        if rules.compacts and run.size_bytes >= rules.segment_bytes:
            if stretch:
                yield stretch
            stretch = []
        else:
            stretch.append(run)
    if stretch:
        yield stretch


def _due(topic: TopicState, stretches: Sequence[Runs], policy: MergePolicy, now_ms: int) -> Merge | None:
    if not stretches:
        return None
    large = sum(_is_large(run, policy.rules) for runs in stretches for run in runs)
    idle = policy.idle or large > LARGE_RUNS_MAX
    policy = replace(policy, ratio=final_ratio(topic.segments), idle=idle)
    found = (_aged(runs, policy, now_ms) or _timeless(runs, policy) for runs in stretches)
    return next((merge for merge in found if merge), None)


def _timeless(runs: Runs, policy: MergePolicy) -> Merge | None:
    """A merge that is due at any time."""
    if policy.idle:
        return _full(runs, policy) or _up_to_large(runs, policy) or _gathered(runs, policy)
    between = (list(found) for large, found in groupby(runs, partial(_is_large, rules=policy.rules)) if not large)
    merges = (_full(small, policy) or _gathered(small, policy) for small in between)
    return next((merge for merge in merges if merge), None)


def _is_large(run: TopicRun, rules: UpkeepRules) -> bool:
    return run.level == 0 and run.size_bytes * WAITING_SHARE >= rules.segment_bytes


def _merge(runs: Runs, level: int) -> Merge:
    return Merge(runs[0].number, runs[-1].number, level)


def _full(runs: Runs, policy: MergePolicy) -> Merge | None:
    size_bytes = 0.0
    for count, run in enumerate(policy.with_room(runs), start=1):
        size_bytes += policy.final_bytes(run)
        if size_bytes >= policy.rules.segment_bytes and (count > 1 or run.level == 0):
            return _merge(runs[:count], FINAL_LEVEL)
    return None


def _up_to_large(runs: Runs, policy: MergePolicy) -> Merge | None:
    leading = policy.with_room(runs)
    ends = [count for count, run in enumerate(leading, start=1) if _is_large(run, policy.rules)]
    return _merge(leading[: ends[-1]], FINAL_LEVEL) if ends else None


def _aged(runs: Runs, policy: MergePolicy, now_ms: int) -> Merge | None:
    if now_ms < _since_ms(runs) + policy.rules.segment_ms or (len(runs) < 2 and not _is_large(runs[0], policy.rules)):
        return None
    return _full(runs, policy) or _merge(policy.with_room(runs), FINAL_LEVEL)


def _gathered(runs: Runs, policy: MergePolicy) -> Merge | None:
    leading = policy.with_room(runs)
    crowded = len(leading) < len(runs) and all(run.level > 0 for run in leading)
    if crowded or sum(run.level for run in runs) >= FAN_IN_MAX:
        return _merge(leading, FINAL_LEVEL)
    level_0 = (list(found) for level, found in groupby(runs, lambda run: run.level) if level == 0)
    return next(filter(None, map(partial(_fan_in_of, policy=policy), level_0)), None)


def _fan_in_of(runs: Runs, policy: MergePolicy) -> Merge | None:
    """A merge of level 0, if there is enough of it."""
    gathered = policy.with_room(runs)
    if len(gathered) < min(len(runs), FAN_IN_MAX):
        return _merge(gathered, 1)  # the memory has no room for more
    if len(gathered) < FAN_IN_MIN or len(gathered) < fan_in(gathered, policy.rules):
        return None
    if sum(map(policy.final_bytes, gathered)) * WAITING_SHARE >= policy.rules.segment_bytes:
        return None
    return _merge(gathered, 1)


def fan_in(runs: Runs, rules: UpkeepRules) -> int:
    """How many runs like `runs` (at least two) are merged into one of level 1."""
    count = len(runs)
    fitting = rules.segment_bytes * count / max(1, sum(run.size_bytes for run in runs))
    spent_ms = runs[-1].archived_at_ms - runs[0].archived_at_ms
    coming = rules.segment_ms * (count - 1) / spent_ms if spent_ms > 0 else math.inf
    return min(FAN_IN_MAX, max(FAN_IN_MIN, math.ceil(math.sqrt(min(fitting, coming)))))


def _since_ms(runs: Runs) -> int:
    """When the oldest record of `runs` was archived. Record timestamps may have any value, so they are used only if
    that is unknown."""
    return runs[0].archived_at_ms or runs[0].max_timestamp_ms
