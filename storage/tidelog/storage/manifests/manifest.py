"""The manifest of a partition: the list of its segments, as the newest entry of an object log.

Segments are ascending and do not overlap. Together they hold ``[log_start_offset, cold_end)``, with gaps only below
`clean_end`, where compaction removed records, and where `losses` has them (inv. 4, 5). Version *v + 1* is appended by
create-if-absent: of two workers on one partition one wins, and the other starts over (`manifest_log`).

A version also has its change, and a hash over the change and its predecessor's hash. This `head` covers the whole
history of the partition, so that a later archive can be proved to have grown from this one (`tidelog bucket attest`).
Segments that left the list stay named as `garbage` until they are deleted, so that no crash leaves an unknown object.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tidelog.storage.formats import Format
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.losses import Loss
from tidelog.storage.wal.wal_entry import ProducerMark

MANIFEST_FORMAT = Format("old manifest", 2, 2)

GENESIS = "0" * 64
"""The `head` before the first version."""


@dataclass(frozen=True)
class Segment:
    """One Parquet object with archived records. Sizes are in bytes, `raw_bytes` those of uncompressed keys and values;
    timestamps in ms since 1970 UTC. `level`: how often its records were merged into larger segments. `archived_at_ms`:
    when the first of its records was archived, by the archiver's clock (0: unknown)."""

    key: str
    base_offset: int
    last_offset: int
    records: int
    size_bytes: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    sha256: str
    raw_bytes: int = 0
    level: int = 0
    archived_at_ms: int = 0

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1


class ChangeKind(Enum):
    """Why a version was appended."""

    ARCHIVE = "archive"  # added records from the WAL
    MERGE = "merge"  # put the same records into larger segments
    COMPACT = "compact"  # removed older records of a key
    EXPIRE = "expire"  # retention moved the log start
    DELETE_RECORDS = "delete-records"  # a request moved the log start
    LOSE = "lose"  # a repair recorded losses and removed lost segments
    COLLECT = "collect"  # deleted garbage
    SWEEP = "sweep"  # changed nothing, so that earlier uploads can no longer be named


@dataclass(frozen=True)
class Change:
    """The difference between a version and the one before it: the sha256 of the removed and of the added segments, each
    by offset."""

    kind: ChangeKind
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


@dataclass(frozen=True)
class Garbage:
    """An object that left the list with `since_version`. It is deleted a grace later, because readers may hold plans
    over it."""

    key: str
    size_bytes: int
    since_version: int


@dataclass(frozen=True)
class Cleaning:
    """At `at_ms` compaction had processed every record below `end_offset`, and no later ones. The tombstones below
    count their time from then (ADR 0013)."""

    end_offset: int
    at_ms: int


@dataclass(frozen=True)
class Manifest:
    """One version. `version` is -1 for a partition that has none yet. `producers` has the last batch of each idempotent
    producer at the cold end, so that inv. 7 outlives the WAL. Below `clean_end` each key is there once; `cleanings`,
    ascending, say when each stretch below it was first compacted. `losses`, ascending, may lie beyond the cold end.

    `ManifestLog.append` sets `garbage`, `previous_head`, `head`, `change` and `base_version`; a worker changes the
    rest. This version is stored as a difference to `base_version`, or whole if that is None."""

    topic_partition: TopicPartition
    version: int = -1
    log_start_offset: int = 0
    cold_end: int = 0
    segments: tuple[Segment, ...] = ()
    producers: tuple[ProducerMark, ...] = ()
    clean_end: int = 0
    cleanings: tuple[Cleaning, ...] = ()
    losses: tuple[Loss, ...] = ()
    garbage: tuple[Garbage, ...] = ()
    previous_head: str = GENESIS
    head: str = GENESIS
    change: Change | None = None
    base_version: int | None = None

    @property
    def size_bytes(self) -> int:
        """The size of all segments together."""
        return sum(segment.size_bytes for segment in self.segments)
