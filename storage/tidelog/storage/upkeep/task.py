"""The seam between the loop that looks after a shard's archive (`upkeep`) and its tasks, one per concern.

A task looks at one topic in the newest manifest and says when it next has something to do there. `run` does one step of
it and appends one version. Two workers on one shard are safe: the append of the slower one is a `Conflict`, and it
starts over from the other's version. Steps are small, because the loop has other topics to look after.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ShardManifest
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.upkeep.rules import UpkeepRules


@dataclass(frozen=True)
class TopicInShard:
    """What a task looks at: a topic's part of the shard's newest `manifest`, whose list was read."""

    place: SegmentPlace
    manifest: ShardManifest

    @property
    def state(self) -> TopicState:
        return self.manifest.topics[self.place.topic_id]


class UpkeepTask(Protocol):
    """Retention, compaction by key, merging."""

    def due_at_ms(self, topic: TopicInShard, rules: UpkeepRules, now_ms: int) -> int | None:
        """When `run` has something to do, in ms since 1970 UTC: `now_ms` or earlier means now; None means not before
        another version changes the topic. Pure and quick, because it is called for a topic after every version that
        changes it."""
        ...

    async def run(self, place: SegmentPlace, log: ShardLog, rules: UpkeepRules) -> ShardManifest | None:
        """One step from the newest version on. Returns the version that it appended, or None if there was nothing to
        do. Raises `Conflict` (another worker was faster: run again), `Unavailable`, `Corrupt`; running again is always
        right."""
        ...
