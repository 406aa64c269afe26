"""Log compaction by key: the newest record of each key stays, and offsets never change (inv. 4).

    task = CompactTask(store, runtime, limits, executor, spill_folder)
    due_at_ms = task.due_at_ms(manifest, rules, now_ms)
    manifest = await task.run(place, log, rules)          # one rewrite, one version

A pass covers everything up to the uncleanable end (`compact_plan`). It reads the keys and finds the records to remove
(`compact_keys`), then rewrites segments that lose records, one rewrite and one manifest version at a time
(`compact_rewrite`). The first run of a pass reads the keys, and each run does one rewrite. The rest of the pass is
remembered between runs, so that other partitions, and the archiver, run in between. After every version, a reader that
reads from 0 to the end gets the same map of keys as one that saw every record. ADR 0013 explains the design.

A rewrite goes into whichever version is the newest, if its inputs are still in there. If another worker has replaced
one, it is a `Conflict`, and the pass starts over. If a restart or an error loses a pass, only work is lost: rewritten
segments are clean, and the others are dirty as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path

from tidelog.storage.errors import Conflict, Corrupt, NotFound
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.manifest import ChangeKind, Manifest, Segment
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.segment_codec import EncodedSegment
from tidelog.storage.upkeep.compact_keys import CompactMeans, rows_that_go
from tidelog.storage.upkeep.compact_plan import cleaned, compaction_due_at_ms, plan_compaction
from tidelog.storage.upkeep.compact_rewrite import Rewrite, Rewriter, plan_rewrites, replaced
from tidelog.storage.upkeep.fresh_upload import FreshUpload
from tidelog.storage.upkeep.key_spill import HashKeys, spread_hash
from tidelog.storage.upkeep.row_set import RowSet
from tidelog.storage.upkeep.rules import UpkeepLimits, UpkeepRules
from tidelog.storage.upkeep.task import Place

PASSES_MAX = 8
"""Passes in progress at the same time, one bit per record each; beyond that the oldest is dropped."""


@dataclass(frozen=True)
class _Pass:
    """The rest of a pass: `rewrites` without the rows in `going`; if there are none, only the clean end moves."""

    going: RowSet
    rewrites: tuple[Rewrite, ...]
    clean_end: int

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
        self._means = CompactMeans(store, executor, limits.memory_bytes, spill_folder, hash_keys)
        self._runtime = runtime
        self._fresh = FreshUpload(store, runtime, limits.grace_s)
        self._begun: dict[TopicPartition, _Pass] = {}

    def due_at_ms(self, manifest: Manifest, rules: UpkeepRules, now_ms: int) -> int | None:
        if rules.compacts and manifest.topic_partition in self._begun:
            return now_ms
        return compaction_due_at_ms(manifest, rules, now_ms)

    async def run(self, place: Place, log: ManifestLog, rules: UpkeepRules) -> Manifest | None:
        """One rewrite of the pass in progress, or of the one that is due. It also raises `Unavailable` if the spill
        folder is full."""
        begun = self._begun.pop(place.topic_partition, None)
        manifest = await log.latest()
        try:
            pass_ = begun or await self._begin(manifest, rules)
            if pass_ is None:
                return None
            appended = await self._rewrite(place, log, rules, pass_)
        except NotFound as error:
            if begun or (await log.latest()).version > manifest.version:
                raise Conflict(f"a segment left the manifest while it was being compacted: {error}") from error
            raise Corrupt(log.key(manifest.version), f"names a segment that does not exist: {error}") from error
        self._remember(place, pass_.after_first())
        return appended

    async def _begin(self, manifest: Manifest, rules: UpkeepRules) -> _Pass | None:
        plan = plan_compaction(manifest, rules, self._runtime.clock.now_ms())
        if plan is None:
            return None
        going = await rows_that_go(self._means, plan)
        return _Pass(going, tuple(plan_rewrites(plan, going, rules.segment_bytes)), plan.clean_end)

    async def _rewrite(self, place: Place, log: ManifestLog, rules: UpkeepRules, pass_: _Pass) -> Manifest:
        inputs: Sequence[Segment] = ()
        outputs: Sequence[EncodedSegment] = ()
        clean_end = pass_.clean_end
        if pass_.rewrites:
            first = pass_.rewrites[0]
            rewriter = Rewriter(self._means, self._runtime.entropy, place, rules, pass_.going)
            inputs, outputs, clean_end = first.inputs, await rewriter.outputs(first), first.clean_end

        def successor(latest: Manifest, added: Sequence[Segment]) -> Manifest:
            now_ms = self._runtime.clock.now_ms()
            return cleaned(replaced(latest, inputs, added), clean_end, rules.delete_retention_ms, now_ms)

        return await self._fresh.append(log, outputs, successor, ChangeKind.COMPACT)

    def _remember(self, place: Place, pass_: _Pass) -> None:
        if pass_.rewrites:
            self._begun[place.topic_partition] = pass_
        while len(self._begun) > PASSES_MAX:
            del self._begun[next(iter(self._begun))]
