"""What the upkeep of a topic's segments goes by, and what it may cost: values, under the names that Kafka's settings
and the broker's have."""

from __future__ import annotations

from dataclasses import dataclass

UNLIMITED = -1
DAY_MS = 86_400_000


@dataclass(frozen=True)
class UpkeepRules:
    """Of one topic. Durations in ms, sizes in bytes; `retention_ms` and `retention_bytes` may be `UNLIMITED`.

    `deletes` and `compacts` are the two halves of ``cleanup.policy``; the rest are Kafka's settings of these names, but
    `key_bloom_filter`: whether merged segments have a bloom filter of their keys.
    """

    deletes: bool = True
    compacts: bool = False
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = UNLIMITED
    segment_bytes: int = 128 * 1024 * 1024
    segment_ms: int = 7 * DAY_MS
    key_bloom_filter: bool = False
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    min_cleanable_dirty_ratio: float = 0.5


@dataclass(frozen=True)
class UpkeepLimits:
    """What one worker takes at most. `memory_bytes`: raw records held at a time; `bandwidth_bytes`: read and written in
    a second, None: as much as there is; `grace_s`: how long what left a manifest stays on the bucket."""

    memory_bytes: int = 128 * 1024 * 1024
    bandwidth_bytes: int | None = None
    grace_s: float = 900.0
