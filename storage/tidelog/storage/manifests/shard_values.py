"""The values of a shard's manifest: segments of many partitions, and the state of each partition.

A segment holds records of one topic and of any partitions of one shard. Its **spans** say which: a span is the part of
one partition, and spans follow each other in the order of the segment's rows. Segments of a topic form **runs**. A run
has been written at once, by a pass of the archiver or by a merge; its segments are sorted by (partition, offset). For
every partition, a later run has later offsets. So the spans of a partition, taken run by run, are its log up to the
cold end (inv. 5).

The values are stored as they are: those with `array_like` as JSON arrays, the others as objects. Readers ignore fields
that they do not know, and elements after the last that they know; writers only ever append. So a newer broker may store
more than an older one reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import msgspec

from tidelog.storage.manifests.json_envelope import Natural
from tidelog.storage.manifests.losses import Loss


class SegmentSpan(msgspec.Struct, frozen=True, array_like=True):
    """The records of one partition in a segment: offsets `base_offset` to `last_offset`, which only compaction and
    recorded losses thin out. `raw_bytes`: their keys and values, uncompressed."""

    partition: Natural
    base_offset: Natural
    last_offset: Natural
    records: Natural
    raw_bytes: Natural

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1


class TopicSegment(msgspec.Struct, frozen=True):
    """One Parquet object. `run`: the number of its run, in the order of the log. `level`: how often its records were
    merged. Times are in ms since 1970 UTC; `archived_at_ms` is when the first of its records was archived, by the
    archiver's clock. `spans` ascend by partition. Manifests have it in columns (`segment_columns`)."""

    key: str
    run: int
    level: int
    size_bytes: int
    sha256: str
    min_timestamp_ms: int
    max_timestamp_ms: int
    archived_at_ms: int
    spans: Sequence[SegmentSpan]

    @property
    def records(self) -> int:
        return sum(span.records for span in self.spans)

    @property
    def raw_bytes(self) -> int:
        return sum(span.raw_bytes for span in self.spans)

    @property
    def place(self) -> tuple[int, int, int]:
        """The order of the segments of a topic: run, then first partition, then first offset."""
        return self.run, self.spans[0].partition, self.spans[0].base_offset


class LeaderEpoch(msgspec.Struct, frozen=True, array_like=True):
    """The records of a partition from `first_offset` on were written in `epoch`, up to those of the next one."""

    epoch: Natural
    first_offset: Natural


class Cleaning(msgspec.Struct, frozen=True, array_like=True):
    """At `at_ms` compaction had processed every record below `end_offset`, and no later ones. The tombstones below
    count their time from then (ADR 0013)."""

    end_offset: Natural
    at_ms: int


class KnownProducer(msgspec.Struct, frozen=True, array_like=True):
    """The last batch of an idempotent producer (`wal_entry.ProducerMark`), and when it was archived, in ms since 1970
    UTC."""

    producer_id: str
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    base_offset: Natural
    archived_at_ms: Natural


class ColdState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything about a partition but its segments. `producers` has the last batch of each idempotent producer at the
    cold end, so that inv. 7 outlives the WAL. Below `clean_end` each key is there once; `cleanings`, ascending, say
    when each stretch below it was first compacted. `losses`, ascending, may lie beyond the cold end. `epochs`,
    ascending, begin at the epoch of the log start."""

    log_start_offset: Natural = 0
    cold_end: Natural = 0
    clean_end: Natural = 0
    cleanings: tuple[Cleaning, ...] = ()
    losses: tuple[Loss, ...] = ()
    epochs: tuple[LeaderEpoch, ...] = ()
    producers: tuple[KnownProducer, ...] = ()


EMPTY = ColdState()


class ChangeKind(Enum):
    """Why a version was appended."""

    ARCHIVE = "archive"  # added records from the WAL and moved the floor
    MERGE = "merge"  # put the same records into larger segments
    COMPACT = "compact"  # removed older records of a key
    EXPIRE = "expire"  # retention moved log starts
    DELETE_RECORDS = "delete-records"  # a request moved a log start
    DELETE_TOPIC = "delete-topic"  # a topic left the shard
    LOSE = "lose"  # a repair recorded losses and removed lost segments
    COLLECT = "collect"  # deleted garbage
    SWEEP = "sweep"  # changed nothing, so that earlier uploads can no longer be named


class Garbage(msgspec.Struct, frozen=True, array_like=True):
    """An object that left a list with `since_version`, at `since_ms` by that worker's clock. It is deleted a grace
    later, because readers may hold plans over it (`upkeep.collect`)."""

    key: str
    size_bytes: Natural
    since_version: Natural
    since_ms: Natural = 0
