"""The manifest of a partition: which segments hold its cold records, as the newest entry of an object log.

Segments are ascending and do not overlap; together they hold ``[log_start_offset, cold_end)``, with gaps only below
`clean_end`, where compaction removed records, and where `losses` says so (inv. 4, 5). Appending version *v + 1* is a
create-if-absent: of two workers on one partition one wins, the other starts over (`manifest_log`).

A version also says what it changed, and hashes that together with its predecessor's hash: `head` stands for the whole
history of the partition, so that a later archive can be shown to be this one grown (`tidelog bucket attest`). What left
the list stays named as `garbage` until it is deleted, so that no crash leaves an object nobody knows of.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.losses import Loss
from tidelog.storage.wal_entry import ProducerMark

MANIFEST_FORMAT_VERSION = 2

GENESIS = "0" * 64
"""The `head` before the first version."""


@dataclass(frozen=True)
class Segment:
    """One cold Parquet object. Sizes in bytes, `raw_bytes` of keys and values as they are; timestamps in ms since 1970
    UTC; `level`: how often its records were written again to make larger segments of small ones; `archived_at_ms`: when
    the first of its records came from the WAL, by the archiver's clock (0: not known)."""

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

    ARCHIVE = "archive"  # records came from the WAL
    MERGE = "merge"  # the same records in larger segments
    COMPACT = "compact"  # older records of a key left
    EXPIRE = "expire"  # retention moved the log start
    DELETE_RECORDS = "delete-records"  # somebody moved the log start
    LOSE = "lose"  # a repair recorded losses, and what of the segments is left
    COLLECT = "collect"  # garbage was deleted
    SWEEP = "sweep"  # nothing; what was uploaded before and has no name yet gets none any more


@dataclass(frozen=True)
class Change:
    """What a version did to the one before it: the sha256 of the segments that left and of those that came, each by
    offset."""

    kind: ChangeKind
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


@dataclass(frozen=True)
class Garbage:
    """An object that left the list with `since_version`; it is deleted once a grace has passed since (readers hold
    plans over it)."""

    key: str
    size_bytes: int
    since_version: int


@dataclass(frozen=True)
class Cleaning:
    """At `at_ms` compaction had been over every record below `end_offset`, and not yet over what comes then: from which
    its tombstones count their time (ADR 0013)."""

    end_offset: int
    at_ms: int


@dataclass(frozen=True)
class Manifest:
    """One version. `version` is -1 for a partition that has none yet; `producers` is the last batch of each
    idempotent producer at the cold end (inv. 7 outlives the WAL). Below `clean_end` a key was last compacted;
    `cleanings`, ascending, say when each stretch of that first was. `losses`, ascending, may lie beyond the cold end.

    `garbage`, `previous_head`, `head`, `change` and `base_version` are made by `ManifestLog.append`; a worker changes
    the rest. `base_version` is the version that this one is stored as a difference to, None: it is stored whole."""

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
        """Of all segments."""
        return sum(segment.size_bytes for segment in self.segments)
