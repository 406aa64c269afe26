"""Log compaction by key: the newest record of each key stays, and offsets never change (inv. 4).

    task = CompactTask(rewriter)
    due_at_ms = task.due_at_ms(topic, rules, now_ms)
    manifest = await task.run(place, log, rules)          # one step, one version

A pass covers all partitions of a topic in a shard, up to the uncleanable end (`compact_plan`). It reads the keys and
finds the records to remove (`compact_keys`), then rewrites runs that lose records, one rewrite and one manifest version
at a time (`run_rewrite`). The first call of `run` reads the keys, and each call takes one step. The rest of the pass is
remembered between calls, so that other topics, and the archiver, have their turn. After every version, a reader that
reads from 0 to the end gets the same map of keys as one that saw every record. ADR 0013 explains the design.

A rewrite goes into whichever version is the newest, if its inputs are still in there. If another worker has replaced
one, it is a `Conflict`, and the pass starts over. If a restart or an error loses a pass, only work is lost: rewritten
segments are clean, and the others are dirty as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ShardManifest, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind, TopicSegment
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.segments.topic_segment import SEGMENT_FLAVOR, SegmentPlace
from tidelog.storage.upkeep.compact_keys import rows_that_go
from tidelog.storage.upkeep.compact_plan import (
    CompactStep,
    cleaned_states,
    compaction_due_at_ms,
    plan_compaction,
    plan_steps,
    replaced,
)
from tidelog.storage.upkeep.key_spill import HashKeys, spread_hash
from tidelog.storage.upkeep.row_set import RowSet
from tidelog.storage.upkeep.rules import UpkeepRules
from tidelog.storage.upkeep.run_rewrite import Rewrite, Rewriter, reading_inputs
from tidelog.storage.upkeep.task import TopicInShard

PASSES_MAX = 8
"""Passes in progress at the same time, one bit per record each; beyond that the oldest is dropped."""


@dataclass(frozen=True)
class _Pass:
    """The rest of a pass: `steps` without the rows in `going`."""

    going: RowSet
    steps: tuple[CompactStep, ...]


class CompactTask:
    """The `UpkeepTask` of compaction. The spill folder of `rewriter` holds keys, too."""

    def __init__(self, rewriter: Rewriter, *, hash_keys: HashKeys = spread_hash) -> None:
        self._rewriter = rewriter
        self._hash_keys = hash_keys
        self._clock = rewriter.clock
        self._begun: dict[SegmentPlace, _Pass] = {}

    def due_at_ms(self, topic: TopicInShard, rules: UpkeepRules, now_ms: int) -> int | None:
        if rules.compacts and topic.place in self._begun:
            return now_ms
        return compaction_due_at_ms(topic.state, rules, now_ms)

    async def run(self, place: SegmentPlace, log: ShardLog, rules: UpkeepRules) -> ShardManifest | None:
        """One step of the pass in progress, or of the one that is due. It also raises `Unavailable` if the spill folder
        is full."""
        begun = self._begun.pop(place, None)
        manifest = await log.with_lists(await log.newest(), [place.topic_id])
        async with reading_inputs(log, manifest, planned_now=begun is None):
            pass_ = begun or await self._begin(manifest.topics.get(place.topic_id), rules)
            if pass_ is None:
                return None
            appended = await self._step(place, log, rules, pass_)
        self._remember(place, replace(pass_, steps=pass_.steps[1:]))
        return appended

    async def _begin(self, topic: TopicState | None, rules: UpkeepRules) -> _Pass | None:
        plan = plan_compaction(topic, rules, self._clock.now_ms()) if topic else None
        if plan is None:
            return None
        going = await rows_that_go(self._rewriter, plan, self._hash_keys)
        return _Pass(going, plan_steps(plan, going, rules.segment_bytes, self._rewriter.input_bytes_max))

    async def _step(self, place: SegmentPlace, log: ShardLog, rules: UpkeepRules, pass_: _Pass) -> ShardManifest:
        step = pass_.steps[0]
        # Level 0, also of inputs of a higher level: a small run may be merged like a new one.
        rewrite = Rewrite(step.runs, 0, pass_.going, checked=True)
        flavor = replace(SEGMENT_FLAVOR, bloom_column="key") if rules.key_bloom_filter else SEGMENT_FLAVOR
        made = await self._rewriter.made(place, rewrite, flavor, rules.segment_bytes)

        def replacement(latest: TopicState, added: Sequence[TopicSegment]) -> TopicChange:
            states = cleaned_states(latest, step.clean_ends, rules, self._clock.now_ms())
            return replace(replaced(latest, rewrite.inputs, added), partitions=states)

        return await self._rewriter.appended(log, place, made, ChangeKind.COMPACT, replacement)

    def _remember(self, place: SegmentPlace, pass_: _Pass) -> None:
        if pass_.steps:
            self._begun[place] = pass_
        while len(self._begun) > PASSES_MAX:
            del self._begun[next(iter(self._begun))]
