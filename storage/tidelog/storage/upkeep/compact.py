"""Log compaction by key: of each key the newest record stays, and offsets never change (inv. 4).

    task = CompactTask(store, runtime, limits, executor, spill_folder)
    due_at_ms = task.due_at_ms(manifest, rules, now_ms)
    manifest = await task.run(place, log, rules)

One run is one pass over everything up to the uncleanable end (`compact_plan`): it reads the keys and finds what goes
(`compact_keys`), then writes segments that lose records again, a rewrite and a manifest version at a time
(`compact_rewrite`). Whoever reads from 0 to the end has the same map of keys in the end as one who saw every record,
after every version. Why it is done so: ADR 0013.

The archiver goes on appending meanwhile: a rewrite is put into whichever version is the newest, as long as its inputs
are still in there. If another worker has replaced one, it is a `Conflict`, and the run starts over.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path

from tidelog.storage.errors import Conflict, Corrupt, NotFound
from tidelog.storage.manifest import ChangeKind, Manifest, Segment
from tidelog.storage.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.segment_codec import EncodedSegment
from tidelog.storage.upkeep.compact_keys import CompactMeans, rows_that_go
from tidelog.storage.upkeep.compact_plan import CompactPlan, cleaned, compaction_due_at_ms, plan_compaction
from tidelog.storage.upkeep.compact_rewrite import Rewriter, plan_rewrites, replaced
from tidelog.storage.upkeep.fresh_upload import FreshUpload
from tidelog.storage.upkeep.key_spill import HashKeys, spread_hash
from tidelog.storage.upkeep.rules import UpkeepLimits, UpkeepRules
from tidelog.storage.upkeep.task import Place


class CompactTask:
    """The `UpkeepTask` of compaction. `executor` does the work on records, None: the event loop's own. `spill_folder`
    holds keys and segments on their way, in files without names: nothing is left of them when a process ends."""

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

    def due_at_ms(self, manifest: Manifest, rules: UpkeepRules, now_ms: int) -> int | None:
        return compaction_due_at_ms(manifest, rules, now_ms)

    async def run(self, place: Place, log: ManifestLog, rules: UpkeepRules) -> Manifest | None:
        """One pass; its last version. Beside what the seam says, `Unavailable` if the spill folder is full."""
        manifest = await log.latest()
        plan = plan_compaction(manifest, rules, self._runtime.clock.now_ms())
        if plan is None:
            return None
        try:
            return await self._pass(place, log, rules, plan)
        except NotFound as error:
            if (await log.latest()).version > manifest.version:
                raise Conflict(f"a segment left the manifest while it was being compacted: {error}") from error
            raise Corrupt(log.key(manifest.version), f"names a segment that is not there: {error}") from error

    async def _pass(self, place: Place, log: ManifestLog, rules: UpkeepRules, plan: CompactPlan) -> Manifest:
        going = await rows_that_go(self._means, plan)
        rewrites = plan_rewrites(plan, going, rules.segment_bytes)
        if not rewrites:
            return await self._append(log, rules, (), (), plan.clean_end)
        rewriter = Rewriter(self._means, self._runtime.entropy, place, rules, going)
        for rewrite in rewrites:
            outputs = await rewriter.outputs(rewrite)
            manifest = await self._append(log, rules, rewrite.inputs, outputs, rewrite.clean_end)
        return manifest

    async def _append(
        self,
        log: ManifestLog,
        rules: UpkeepRules,
        inputs: Sequence[Segment],
        outputs: Sequence[EncodedSegment],
        clean_end: int,
    ) -> Manifest:
        def successor(latest: Manifest, added: Sequence[Segment]) -> Manifest:
            now_ms = self._runtime.clock.now_ms()
            return cleaned(replaced(latest, inputs, added), clean_end, rules.delete_retention_ms, now_ms)

        return await self._fresh.append_to_latest(log, outputs, successor, ChangeKind.COMPACT)
