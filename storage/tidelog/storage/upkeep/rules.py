"""The settings of a topic and of the broker that upkeep follows, as values with the settings' names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

UNLIMITED = -1
DAY_MS = 86_400_000


@dataclass(frozen=True)
class UpkeepRules:
    """The rules of one topic. Durations in ms, sizes in bytes; `retention_ms` and `retention_bytes` may be `UNLIMITED`.

    `grace_ms` is ``file.delete.delay.ms``: how long a segment stays in the bucket after it left the list, for queries
    that were planned before. `deletes` and `compacts` are the two parts of ``cleanup.policy``. `key_bloom_filter`:
    merged segments have a bloom filter of their keys. The others are Kafka's settings of the same names."""

    deletes: bool = True
    compacts: bool = False
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = UNLIMITED
    segment_bytes: int = 128 * 1024 * 1024
    segment_ms: int = 7 * DAY_MS
    grace_ms: int = DAY_MS
    key_bloom_filter: bool = False
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    min_cleanable_dirty_ratio: float = 0.5


@dataclass(frozen=True)
class UpkeepLimits:
    """The limits of one worker. `memory_bytes`: raw records held in memory; `bandwidth_bytes`: read and written per
    second (None: unlimited); `grace_s`: how long lists and old versions of a manifest stay in the bucket after a newer
    one was seen, and segments at least (`UpkeepRules.grace_ms`)."""

    memory_bytes: int = 128 * 1024 * 1024
    bandwidth_bytes: int | None = None
    grace_s: float = 900.0


class Load(Enum):
    """What else the process does. `BUSY`: other work needs the processor now. `QUIET`: not at this moment. `IDLE`: not
    for a long time, so that work may begin that could wait for days."""

    BUSY = "busy"
    QUIET = "quiet"
    IDLE = "idle"


def always_idle() -> Load:
    """The load of a process that does nothing else, such as a compactor."""
    return Load.IDLE
