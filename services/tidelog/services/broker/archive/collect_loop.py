"""Deletes what led shards do not need any more, apart from archiving: archived WAL entries, garbage, deleted topics.

- **WAL entries** below a floor that was seen a grace ago, every `COLLECT_EVERY_S`.
- **Garbage and old versions**, when they are ripe (`ShardUpkeep.collect`), unless another process does the upkeep.
- **Deleted topics** leave the manifests of led shards as soon as they are seen (`TopicRemover`).

A shard whose manifest is damaged is skipped, and `Damages` names the object.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.services.broker.api.cluster import Damage
from tidelog.services.broker.archive.topic_remover import TopicRemover
from tidelog.services.broker.shard.led_shard import LedShard
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.services.broker.telemetry.damages import Damages
from tidelog.storage.background_loop import BackgroundLoop
from tidelog.storage.errors import Corrupt
from tidelog.storage.runtime import Runtime

CHECK_EVERY_S = 1.0
COLLECT_EVERY_S = 60.0


class CollectLoop(BackgroundLoop):
    """Deletes for the shards that are led at each moment."""

    def __init__(self, shards: ShardSet, remover: TopicRemover, runtime: Runtime, damages: Damages) -> None:
        super().__init__("deleting", runtime)
        self._shards = shards
        self._remover = remover
        self._damages = damages
        self._entries_at_s = self._clock.monotonic()

    async def step(self) -> float:
        await self.remove_topics()
        await self.collect_garbage()
        if self._clock.monotonic() >= self._entries_at_s:
            self._entries_at_s = self._clock.monotonic() + COLLECT_EVERY_S
            await self.collect_entries()
        return CHECK_EVERY_S

    async def remove_topics(self) -> None:
        """Take deleted topics out of the manifests of led shards."""
        for led in self._serving():
            try:
                await led.while_it_lasts(self._remover.drop_deleted(led))
            except Corrupt as fault:
                self._report(led, "removal of topics", fault)
            else:
                self._report(led, "removal of topics", None)
        await self._remover.end_removals(self._shards.leads)

    async def collect_garbage(self) -> None:
        """Delete garbage and old versions that are ripe."""
        for led in self._serving():
            if led.upkeep.collecting_is_due:
                await led.while_it_lasts(led.upkeep.collect())

    async def collect_entries(self) -> int:
        """Delete the WAL entries whose grace is over. Returns their number."""
        deleted = 0
        for led in self._serving():
            try:
                deleted += await led.collect()
            except Corrupt as fault:
                self._report(led, "collection of entries", fault)
            else:
                self._report(led, "collection of entries", None)
        return deleted

    def _report(self, led: LedShard, work: str, fault: Corrupt | None) -> None:
        effect = f"Nothing of shard {led.shard} is archived or deleted"
        found = [Damage(fault.name, fault.reason, effect, led.shard)] if fault else []
        self._damages.replace(f"{work} of shard {led.shard}", found)

    def _serving(self) -> Sequence[LedShard]:
        return [led for led in self._shards.led_shards() if led.serving]
