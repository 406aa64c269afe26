"""The seam between the loop that looks after a partition's segments (`upkeep`) and its tasks, one per concern.

A task looks at the newest manifest and says when it next has something to do. `run` does one step of it and appends one
manifest version. Two workers on one partition are safe: the append of the slower one is a `Conflict`, and it starts
over from the other's version. Steps are small, because the loop has other partitions to look after.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.manifest import Manifest
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.upkeep.rules import UpkeepRules


@dataclass(frozen=True)
class Place:
    """A partition and the name of its topic, which is part of its objects' keys."""

    topic: str
    topic_partition: TopicPartition


class UpkeepTask(Protocol):
    """Retention, merging, compaction by key, collection of garbage."""

    def due_at_ms(self, manifest: Manifest, rules: UpkeepRules, now_ms: int) -> int | None:
        """When `run` has something to do with `manifest`, in ms since 1970 UTC: `now_ms` or earlier means now; None
        means not before another version. Pure and quick, because it is called for every partition after every
        version."""
        ...

    async def run(self, place: Place, log: ManifestLog, rules: UpkeepRules) -> Manifest | None:
        """One step from the latest version on. Returns the version that it appended, or None if there was nothing to
        do. Raises `Conflict` (another worker was faster: run again), `Unavailable`, `Corrupt`; running again is always
        right."""
        ...
