"""Deletes objects that a shard's manifest does not need any more: garbage, and old versions.

**Garbage.** Segments and lists that left the manifest stay named in it as garbage. Once an object is ripe, the
collector deletes it, and then appends a version that no longer names it. In this order a crash leaves a name without an
object, and the next run deletes it again; nothing is forgotten. An object is ripe

- `grace_s` after this process first saw the version that removed it, on the monotonic clock (`sightings`). Brokers
  hold plans no longer than that, whatever the wall clocks say.
- If it is a segment, also not before its topic's ``file.delete.delay.ms`` has passed since it was removed, by the wall
  clock. That is for long queries of other programs, which plan again if they lose a segment. It counts on while no
  collector runs, so that brokers that restart daily still delete.

To save requests, ripe garbage is collected together: a step that took it all is followed by a rest of one grace.

**Versions.** Readers need the newest version, and a repair the one before it. All others are deleted a grace after a
newer one was seen, 256 at a time; before that, their steps go into a block of the history (`shard_history`). They are
deleted one by one in ascending order, because `ShardLog` relies on that order.

Two collectors at once are safe: a deletion can be repeated, both write the same block, and of two appends one succeeds.
A key is never used again, so even a late deletion hits no live object. A shard in which nothing was written since costs
no request, because `due_at_ms` returns None.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import groupby

from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.layout import segment_topic_id
from tidelog.storage.manifests.shard_chain import Step
from tidelog.storage.manifests.shard_history import BLOCK_VERSIONS, HistoryBlock, ShardHistory
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, step_of
from tidelog.storage.manifests.shard_values import ChangeKind, Garbage
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.upkeep.sightings import Sightings

GARBAGE_PER_STEP = 1_000
"""As many as one request deletes (S3 DeleteObjects)."""

Graces = Callable[[str], int]
"""The ``file.delete.delay.ms`` of a topic, by its id; of a deleted topic, any."""


class Collector:
    """The collection of one shard. `grace_s` as in `UpkeepLimits`. One caller at a time."""

    def __init__(
        self,
        store: ObjectStore,
        runtime: Runtime,
        grace_s: float,
        graces: Graces,
        *,
        block_versions: int = BLOCK_VERSIONS,
    ) -> None:
        self._store = store
        self._clock = runtime.clock
        self._grace_s = grace_s
        self._graces = graces
        self._block_versions = block_versions
        self._sightings = Sightings(runtime.clock, grace_s)
        self._rests_until_s = -math.inf
        self._collected = 0  # no version below it is left

    def due_at_ms(self, manifest: ShardManifest, now_ms: int) -> int | None:
        """When the oldest garbage, or the next block of old versions, is ripe; None: not before another version. By
        this call the collector sees a version, so call it soon after each one."""
        self._sightings.see(manifest.version)
        ripe_ms = [at_ms for _, at_ms in self._ripening(manifest.garbage, now_ms)]
        if (first_kept := self._collected + self._block_versions) < manifest.version:
            ripe_ms.append(self._seen_long_ms(first_kept + 1, now_ms))
        rested_ms = now_ms + _ms(self._rests_until_s - self._clock.monotonic())
        return max(rested_ms, min(ripe_ms)) if ripe_ms else None

    async def run(self, log: ShardLog) -> ShardManifest | None:
        """Collect what is ripe, at most `GARBAGE_PER_STEP` objects. Returns the version that it appended, which does
        not name them any more; None if it appended none. Raises `Unavailable`, `Conflict`, and `Corrupt` if a list or
        version is damaged: its objects stay, everything else is collected, and the next run is due a grace later.
        Running again is always right."""
        manifest = await log.newest()
        self._sightings.see(manifest.version)
        collected, fault = await self._collect_garbage(log, manifest)
        try:
            await self._collect_versions(log)
            if fault:
                raise fault
        except Corrupt:
            self._rest()
            raise
        return collected

    def _ripening(self, garbage: Sequence[Garbage], now_ms: int) -> Iterable[tuple[Garbage, int]]:
        """Each with the time when it may be deleted."""
        seen_ms = cache(lambda version: self._seen_long_ms(version, now_ms))
        grace_ms = cache(self._graces)
        for each in garbage:
            topic_id, ripe_ms = segment_topic_id(each.key), seen_ms(each.since_version)
            yield each, ripe_ms if topic_id is None else max(ripe_ms, each.since_ms + grace_ms(topic_id))

    def _seen_long_ms(self, version: int, now_ms: int) -> int:
        wait_s = self._sightings.ripens_in_s(version)
        assert wait_s is not None, "an awaited version was seen, at the latest with this one"
        return now_ms + _ms(wait_s)

    async def _collect_garbage(
        self, log: ShardLog, manifest: ShardManifest
    ) -> tuple[ShardManifest | None, Corrupt | None]:
        now_ms = self._clock.now_ms()
        ripe = [each for each, ripe_ms in self._ripening(manifest.garbage, now_ms) if ripe_ms <= now_ms]
        going, live, fault = await _checked(log, manifest, ripe[:GARBAGE_PER_STEP])
        if not going:
            return None, fault
        await self._store.delete_many(sorted(going - live))

        def collected(newest: ShardManifest) -> ManifestChange | None:
            named = going & {each.key for each in newest.garbage}
            return ManifestChange(ChangeKind.COLLECT, collected=named) if named else None

        after = await log.change((), collected)
        self._sightings.see(after.version)
        if len(ripe) <= GARBAGE_PER_STEP:
            self._rest()
        return after if after.change and after.change.collected else None, fault

    def _rest(self) -> None:
        self._rests_until_s = self._clock.monotonic() + self._grace_s

    async def _collect_versions(self, log: ShardLog) -> None:
        superseded = self._sightings.ripe() - 1
        end = superseded - superseded % self._block_versions
        if end <= self._collected:
            return
        history = ShardHistory(self._store, log.shard)
        old = await _below(log, end)
        for block, versions in groupby(old, lambda version: version // self._block_versions):
            await self._collect_block(log, history, block * self._block_versions, list(versions))
        self._collected = end

    async def _collect_block(self, log: ShardLog, history: ShardHistory, first: int, versions: Sequence[int]) -> None:
        """Delete `versions` of a block, once the block is stored."""
        last = first + self._block_versions - 1
        if not await history.has(first, last):
            block = await _block(log, history, first, last)
            if block is not None:
                await history.write(block)
        for version in versions:
            await log.delete(version)


def _ms(seconds: float) -> int:
    return math.ceil(max(0.0, seconds) * 1_000)


async def _checked(
    log: ShardLog, manifest: ShardManifest, ripe: Sequence[Garbage]
) -> tuple[frozenset[str], frozenset[str], Corrupt | None]:
    """The keys that can be collected, those of them that are live after all, and why others cannot be collected. No
    worker names a key again; if one did, its records are kept (inv. 5)."""
    keys: dict[str | None, list[str]] = defaultdict(list)
    for each in ripe:
        keys[segment_topic_id(each.key)].append(each.key)
    live = {topic.stored.key for topic in manifest.topics.values() if topic.stored}
    damaged: list[Corrupt] = []
    for topic_id in [topic_id for topic_id in keys if topic_id in manifest.topics]:
        assert topic_id is not None
        try:
            segments = (await log.with_lists(manifest, [topic_id])).topics[topic_id].segments
        except Corrupt as fault:
            damaged.append(fault)
            del keys[topic_id]
        else:
            live |= {key for key in keys[topic_id] if segments.named(key)}
    going = frozenset(key for some in keys.values() for key in some)
    return going, going & live, damaged[0] if damaged else None


async def _below(log: ShardLog, end: int) -> Sequence[int]:
    """The versions below `end` that exist."""
    found = []
    async for version in log.versions():
        if version >= end:
            break
        found.append(version)
    return found


async def _block(log: ShardLog, history: ShardHistory, first: int, last: int) -> HistoryBlock | None:
    """The block of versions `first` to `last`; None if another collector has written it meanwhile."""
    steps: list[Step] = []
    previous_head = ""
    for version in range(first, last + 1):
        try:
            manifest = await log.read(version)
        except NotFound:
            if await history.has(first, last):
                return None
            raise Corrupt(log.key(version), "is missing, and no block of the history has it") from None
        if not steps:
            previous_head = manifest.previous_head
        elif manifest.previous_head != steps[-1].head:
            raise Corrupt(log.key(version), "does not follow the version before it")
        steps.append(step_of(manifest))
    return HistoryBlock(log.shard, previous_head, tuple(steps))
