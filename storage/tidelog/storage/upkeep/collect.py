"""Deletes objects that no version of a manifest needs any more: segments that left its list, and old versions.

**Garbage.** Segments that left the list stay named in the manifest as garbage. A grace after this process first saw the
version that removed them, it deletes the objects, and then appends a version that no longer names them. In this order a
crash leaves a name without an object, and the next run deletes it again; nothing is forgotten.

**Versions.** Readers need the newest version and its base. All others are deleted a grace after a newer one was seen,
256 at a time; before that, their changes go into a block of the history (`manifest_history`). The base of every version
that may still be read is kept. Bases never go back, so these are the base of the newest version that was seen a grace
ago, and everything after it.

Two collectors at once are safe: a deletion can be repeated, both write the same block, and of two appends one succeeds.
A segment's key is never used again, so even a late deletion hits no live object. A partition in which nothing was
written since costs no request, because `due_at_ms` returns None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.manifest import ChangeKind, Manifest
from tidelog.storage.manifests.manifest_chain import chain_fault, step_of
from tidelog.storage.manifests.manifest_codec import stored_part
from tidelog.storage.manifests.manifest_history import BLOCK_VERSIONS, HistoryBlock, ManifestHistory
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.upkeep.rules import UpkeepRules
from tidelog.storage.upkeep.sightings import Sightings
from tidelog.storage.upkeep.task import Place

GARBAGE_PER_STEP = 512
PARTITIONS_MAX = 200_000
"""The number of partitions that are remembered; a forgotten one waits for its whole grace again."""


@dataclass
class _Partition:
    """The versions of a partition that this process saw, and the version below which everything is collected."""

    sightings: Sightings
    collected: int = 0


class CollectTask:
    """The `UpkeepTask` of collection. `grace_s` as in `UpkeepLimits`."""

    def __init__(
        self, store: ObjectStore, runtime: Runtime, grace_s: float, *, block_versions: int = BLOCK_VERSIONS
    ) -> None:
        self._store = store
        self._clock = runtime.clock
        self._grace_s = grace_s
        self._block_versions = block_versions
        self._partitions: dict[TopicPartition, _Partition] = {}

    def due_at_ms(self, manifest: Manifest, rules: UpkeepRules, now_ms: int) -> int | None:  # noqa: ARG002
        """When the oldest garbage, or the next block of old versions, is ripe. By this call the task sees a version."""
        known = self._seen(manifest)
        awaited = [garbage.since_version for garbage in manifest.garbage]
        next_block_end = known.collected + self._block_versions
        if next_block_end <= manifest.version:
            awaited.append(next_block_end)
        if not awaited:
            return None
        wait_s = known.sightings.ripens_in_s(min(awaited))
        assert wait_s is not None, "an awaited version was seen, at the latest with this one"
        return now_ms + math.ceil(wait_s * 1_000)

    async def run(self, place: Place, log: ManifestLog, rules: UpkeepRules) -> Manifest | None:  # noqa: ARG002
        """Garbage first: a damaged version stops only the collection of versions."""
        manifest = await log.latest()
        known = self._seen(manifest)
        appended = await self._collect_garbage(log, manifest, known.sightings.ripe())
        await self._collect_versions(place, log, known)
        return appended

    def _seen(self, manifest: Manifest) -> _Partition:
        place = manifest.topic_partition
        known = self._partitions.pop(place, None) or _Partition(Sightings(self._clock, self._grace_s))
        self._partitions[place] = known  # the most recently used is last
        while len(self._partitions) > PARTITIONS_MAX:
            del self._partitions[next(iter(self._partitions))]
        known.sightings.see(manifest.version)
        return known

    async def _collect_garbage(self, log: ManifestLog, manifest: Manifest, ripe: int) -> Manifest | None:
        going = [garbage for garbage in manifest.garbage if garbage.since_version <= ripe][:GARBAGE_PER_STEP]
        if not going:
            return None
        live = {segment.key for segment in manifest.segments}
        for garbage in going:
            if garbage.key not in live:  # no worker names a key again; if one did, keep its records (inv. 5)
                await self._store.delete(garbage.key)
        gone = {garbage.key for garbage in going}
        left = tuple(garbage for garbage in manifest.garbage if garbage.key not in gone)
        return await log.append(replace(manifest, garbage=left), ChangeKind.COLLECT)

    async def _collect_versions(self, place: Place, log: ManifestLog, known: _Partition) -> None:
        ripe = known.sightings.ripe()
        end = ripe - ripe % self._block_versions
        if end <= known.collected:
            return
        try:
            base_version = stored_part(await log.stored(ripe)).base_version
        except NotFound:
            return  # another collector is ahead of this one
        base = ripe if base_version is None else base_version
        history = ManifestHistory(self._store, place.topic, place.topic_partition)
        old = await _below(log, end)
        for block, versions in groupby(old, lambda version: version // self._block_versions):
            await self._collect_block(log, history, block * self._block_versions, list(versions), base)
        known.collected = end

    async def _collect_block(
        self, log: ManifestLog, history: ManifestHistory, first: int, versions: Sequence[int], base: int
    ) -> None:
        """Delete `versions` of a block, except `base`, once the block is stored."""
        last = first + self._block_versions - 1
        if not await history.has(first, last):
            block = await self._block(log, history, first, last)
            if block is not None:
                await history.write(block)
        for version in versions:
            if version != base:
                await log.delete(version)

    async def _block(self, log: ManifestLog, history: ManifestHistory, first: int, last: int) -> HistoryBlock | None:
        """The block of versions `first` to `last`; None if another collector has written it meanwhile."""
        manifests: list[Manifest] = []
        for version in range(first, last + 1):
            try:
                manifests.append(stored_part(await log.stored(version)))
            except NotFound:
                if await history.has(first, last):
                    return None
                raise Corrupt(log.key(version), "is missing, and no block of the history has it") from None
            if fault := _link_fault(manifests):
                raise Corrupt(log.key(version), fault)
        return HistoryBlock(
            manifests[0].topic_partition, manifests[0].previous_head, tuple(step_of(manifest) for manifest in manifests)
        )


async def _below(log: ManifestLog, end: int) -> Sequence[int]:
    """The versions below `end` that exist."""
    found = []
    async for version in log.versions():
        if version >= end:
            break
        found.append(version)
    return found


def _link_fault(manifests: Sequence[Manifest]) -> str | None:
    """Why the last of `manifests` does not follow the one before it."""
    if len(manifests) > 1 and manifests[-1].previous_head != manifests[-2].head:
        return "does not follow the version before it"
    return chain_fault(manifests[-1])
