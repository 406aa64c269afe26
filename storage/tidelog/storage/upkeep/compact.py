"""Log compaction by key: the newest record of each key stays, and offsets never change (inv. 4).

    task = CompactTask(store, runtime, limits, executor, spill_folder)
    due_at_ms = task.due_at_ms(topic, rules, now_ms)
    manifest = await task.run(place, log, rules)          # one rewrite, one version

A pass covers all partitions of a topic in a shard, up to the uncleanable end (`compact_plan`). It reads the keys and
finds the records to remove (`compact_keys`), then rewrites runs that lose records, one rewrite and one manifest version
at a time (`compact_rewrite`). The first call of `run` reads the keys, and each call does one rewrite. The rest of the
pass is remembered between calls, so that other topics, and the archiver, have their turn. After every version, a reader
that reads from 0 to the end gets the same map of keys as one that saw every record. ADR 0013 explains the design.

A rewrite goes into whichever version is the newest, if its inputs are still in there. If another worker has replaced
one, it is a `Conflict`, and the pass starts over. If a restart or an error loses a pass, only work is lost: rewritten
segments are clean, and the others are dirty as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path

from tidelog.storage.errors import Conflict, Corrupt, NotFound
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest
from tidelog.storage.manifests.shard_upload import EncodedSegment, ShardUpload
from tidelog.storage.manifests.shard_values import ChangeKind, ColdState, TopicSegment
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.upkeep.compact_keys import rows_that_go
from tidelog.storage.upkeep.compact_plan import cleaned, compaction_due_at_ms, plan_compaction
from tidelog.storage.upkeep.compact_rewrite import Rewrite, Rewriter, plan_rewrites, replaced
from tidelog.storage.upkeep.key_spill import HashKeys, spread_hash
from tidelog.storage.upkeep.merge_rows import MergeMeans
from tidelog.storage.upkeep.row_set import RowSet
from tidelog.storage.upkeep.rules import UpkeepLimits, UpkeepRules
from tidelog.storage.upkeep.task import TopicInShard

PASSES_MAX = 8
"""Passes in progress at the same time, one bit per record each; beyond that the oldest is dropped."""


@dataclass(frozen=True)
class _Pass:
    """The rest of a pass: `rewrites` without the rows in `going`; if there are none, only the clean ends move."""

    going: RowSet
    rewrites: tuple[Rewrite, ...]
    clean_ends: Mapping[int, int]

    def after_first(self) -> _Pass:
        return replace(self, rewrites=self.rewrites[1:])


class CompactTask:
    """The `UpkeepTask` of compaction. `executor` processes the records (None: the event loop's default). `spill_folder`
    holds keys and unfinished segments, in files without names, which vanish with the process."""

    def __init__(
        self,
        store: ObjectStore,
        runtime: Runtime,
        limits: UpkeepLimits,
        executor: Executor | None,
        spill_folder: Path,
        *,
        hash_keys: HashKeys = spread_hash,
    ) -> None:
        self._means = MergeMeans(store, executor, limits.memory_bytes, spill_folder)
        self._hash_keys = hash_keys
        self._runtime = runtime
        self._uploads = ShardUpload(store, runtime, limits.grace_s)
        self._begun: dict[SegmentPlace, _Pass] = {}

    def due_at_ms(self, topic: TopicInShard, rules: UpkeepRules, now_ms: int) -> int | None:
        if rules.compacts and topic.place in self._begun:
            return now_ms
        return compaction_due_at_ms(topic.state, rules, now_ms)

    async def run(self, place: SegmentPlace, log: ShardLog, rules: UpkeepRules) -> ShardManifest | None:
        """One rewrite of the pass in progress, or of the one that is due. It also raises `Unavailable` if the spill
        folder is full."""
        begun = self._begun.pop(place, None)
        manifest = await log.with_lists(await log.newest(), [place.topic_id])
        try:
            pass_ = begun or await self._begin(place, manifest.topics.get(place.topic_id), rules)
            if pass_ is None:
                return None
            appended = await self._rewrite(place, log, rules, pass_)
        except NotFound as error:
            if begun or (await log.latest()).version > manifest.version:
                raise Conflict(f"a segment left the manifest while it was being compacted: {error}") from error
            raise Corrupt(log.key(manifest.version), f"names a segment that does not exist: {error}") from error
        self._remember(place, pass_.after_first())
        return appended

    async def _begin(self, place: SegmentPlace, topic: TopicState | None, rules: UpkeepRules) -> _Pass | None:
        plan = plan_compaction(topic, rules, self._runtime.clock.now_ms()) if topic else None
        if plan is None:
            return None
        going = await rows_that_go(self._means, place, plan, self._hash_keys)
        rewrites = plan_rewrites(plan, going, rules.segment_bytes, self._means.input_bytes_max)
        return _Pass(going, tuple(rewrites), plan.clean_ends)

    async def _rewrite(self, place: SegmentPlace, log: ShardLog, rules: UpkeepRules, pass_: _Pass) -> ShardManifest:
        inputs: Sequence[TopicSegment] = ()
        outputs: Sequence[EncodedSegment] = ()
        clean_ends = pass_.clean_ends
        if pass_.rewrites:
            first = pass_.rewrites[0]
            rewriter = Rewriter(self._means, self._runtime.entropy, place, rules, pass_.going)
            inputs, outputs, clean_ends = first.inputs, await rewriter.outputs(first), first.clean_ends

        def successor(latest: ShardManifest, added: Sequence[TopicSegment]) -> ManifestChange:
            topic = latest.topics.get(place.topic_id)
            if topic is None:
                raise Conflict("the topic left the shard while it was being compacted")
            states = self._cleaned(topic, clean_ends, rules)
            change = replace(replaced(topic, inputs, added), partitions=states)
            return ManifestChange(ChangeKind.COMPACT, {place.topic_id: change})

        if not outputs:
            return await log.change([place.topic_id], lambda latest: successor(latest, ()))
        return await self._uploads.append(log, outputs, successor)

    def _cleaned(self, topic: TopicState, clean_ends: Mapping[int, int], rules: UpkeepRules) -> dict[int, ColdState]:
        """The states that change."""
        now_ms = self._runtime.clock.now_ms()
        before = {partition: topic.partition(partition) for partition in clean_ends}
        after = {
            partition: cleaned(state, clean_ends[partition], rules.delete_retention_ms, now_ms)
            for partition, state in before.items()
        }
        return {partition: state for partition, state in after.items() if state is not before[partition]}

    def _remember(self, place: SegmentPlace, pass_: _Pass) -> None:
        if pass_.rewrites:
            self._begun[place] = pass_
        while len(self._begun) > PASSES_MAX:
            del self._begun[next(iter(self._begun))]
