"""The seam between who decides that a partition's segments want work (`upkeep`) and who does it: one task a concern.

A task looks at the newest manifest it is given and says when it next has something to do; `run` does one step of it
and appends one manifest version. Two workers on one partition are harmless: the second's append is a `Conflict`, and it
starts over from what the first made. Steps are small enough for a loop that also has other partitions to look after.
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
        """When, in ms since 1970 UTC, `run` has something to do with `manifest`: `now_ms` or earlier means now; None:
        not before another version. Pure and quick, for it is asked for every partition after every version."""
        ...

    async def run(self, place: Place, log: ManifestLog, rules: UpkeepRules) -> Manifest | None:
        """One step from the latest version on; the version it appended, or None if there was nothing to do after all.
        Raises `Conflict` (another worker was faster: ask again), `Unavailable`, `Corrupt`; running again is always
        right."""
        ...
