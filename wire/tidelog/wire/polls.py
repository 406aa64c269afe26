"""Reading many partitions with one request: ``POST /v1/fetch``, and ``POST /v1/groups/{group}/poll`` for a group's
member.

As Arrow (`ARROW_STATE`), an answer is one stream with the columns ``topic`` (dictionary of strings) and ``partition``
(int32) before those of a record; the answer without its records is JSON in the schema's metadata under `ARROW_STATE`.
A client that also takes `STORED_MEDIA` gets archived records as they are stored, in a Parquet file behind that stream.
As JSON lines, the records come one to a line, and the last line is the answer without its records."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from tidelog.wire.counts import Count
from tidelog.wire.errors import Problem
from tidelog.wire.groups import PartitionOffset, TopicPartitions
from tidelog.wire.records import JsonRecord

ARROW_STATE = b"tidelog"
"""The key of the schema's metadata that holds a `PartsAnswer` or `PollAnswer` without records."""


STORED_MEDIA = "application/vnd.tidelog.stored"
"""The media type of an Arrow stream as above, followed by a Parquet file with the row groups of `StoredPart`s."""


class PartRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A partition to read from `offset` on, or from a position (``earliest``, ``latest``, ``@TIMESTAMP``, ``-N``)."""

    topic: str
    partition: Count
    offset: Count | str
    max_bytes: Count | None = None


class PartsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The bounds are for all partitions together; None: the broker's. `wait_ms`: how long to wait for the first record
    of any of them. Not `fresh`: the ends may be outdated, and cost no proof."""

    partitions: tuple[PartRequest, ...]
    max_bytes: Count | None = None
    max_records: Count | None = None
    wait_ms: Count = 0
    fresh: bool = True


class StoredPart(msgspec.Struct, frozen=True):
    """The records of a partition are in the next `row_groups` of the Parquet file behind the stream, which hold those
    of the partitions in their order: the rows from `offset` on, of the columns of `records.STORED_SCHEMA`."""

    offset: Count
    row_groups: Count


class PartState(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a partition was read: the next read begins at `next_offset`. It is None only if a position could not be
    looked up. `problem`: why it could not be read. `cold`: its records are in segments and were not read this time.
    `cold_end`: the offset up to which they are in segments, if the leader answered. `stored`: the records are behind
    the stream (`STORED_MEDIA`)."""

    topic: str
    partition: Count
    next_offset: Count | None
    log_start_offset: Count | None = None
    high_watermark: Count | None = None
    problem: Problem | None = None
    cold: bool = False
    cold_end: Count | None = None
    stored: StoredPart | None = None


class TopicRecord(JsonRecord, gc=False):
    """A record with its topic; its `partition` is always there."""

    topic: str | UnsetType = UNSET


class PartsAnswer(msgspec.Struct, frozen=True):
    """`records` by partition, in the order of the request; `partitions` has one element for each of the request.
    `stored_bytes`: the size of the Parquet file behind the stream (`STORED_MEDIA`)."""

    partitions: tuple[PartState, ...]
    records: tuple[TopicRecord, ...] | UnsetType = UNSET
    stored_bytes: Count | UnsetType = UNSET


class PollRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One poll of a member: it joins or stays in the group, commits, and reads all partitions that it has.

    The first poll has `topics` or `topic_pattern`, and no `member_id`. Later ones repeat `member_id` and `member_epoch`
    of the last answer, and as `offsets` its `offsets`: these records are done. They are committed unless `commit` is
    False, and reading continues there. A poll also confirms the revocation of the partitions that were revoked from the
    member. `leave`: commit and leave the group; no records are read. The other members are those of `Heartbeat`."""

    member_id: str = ""
    member_epoch: int = 0
    instance_id: str | None = None
    topics: tuple[str, ...] | None = None
    topic_pattern: str | None = None
    assignor: str | None = None
    session_timeout_ms: Count | None = None
    rack: str | None = None
    offsets: tuple[PartitionOffset, ...] = ()
    commit: bool = True
    leave: bool = False
    from_position: str = "latest"
    """Where to begin without a committed offset: ``earliest`` or ``latest`` (`auto.offset.reset`), or ``none``."""
    paused: tuple[TopicPartitions, ...] = ()
    max_bytes: Count | None = None
    max_records: Count | None = None
    wait_ms: Count = 0


class PollAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """`offsets`: send them with the next poll once the records are done. `assignment`: the partitions that the member
    has now; `revoked`: those that it had until this poll. The next poll is due within `session_timeout_ms`."""

    member_id: str
    member_epoch: int
    session_timeout_ms: Count
    assignment: tuple[TopicPartitions, ...]
    offsets: tuple[PartitionOffset, ...] = ()
    partitions: tuple[PartState, ...] = ()
    revoked: tuple[TopicPartitions, ...] = ()
    records: tuple[TopicRecord, ...] | UnsetType = UNSET


class SeekRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sets the committed offsets of a group without members. `to`: ``earliest``, ``latest``, ``@TIMESTAMP`` (ms or ISO
    8601), ``-DURATION`` (``-1h``), ``+N`` or ``-N`` (relative to the committed offset), or an offset. Without `topics`
    or `partitions`: all that the group has committed. `dry_run`: only say what would change."""

    to: str
    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartitions, ...] = ()
    dry_run: bool = False


class Sought(msgspec.Struct, frozen=True):
    """The committed offset of a partition before and after; None: there was none."""

    topic: str
    partition: Count
    before: Count | None
    after: Count


class SeekAnswer(msgspec.Struct, frozen=True):
    """Every partition that was moved, or would be."""

    partitions: tuple[Sought, ...]
    dry_run: bool


class PartitionLag(msgspec.Struct, frozen=True):
    """How far a group is behind in a partition. `lag`: records after `committed` (None: nothing is committed, and `lag`
    counts from the log's start). `lag_ms`: how old the next record to read is, 0 at the end, None if it was not looked
    up. `member_id`: the member that it is assigned to."""

    topic: str
    partition: Count
    committed: Count | None
    log_start_offset: Count
    high_watermark: Count
    lag: Count
    lag_ms: Count | None
    member_id: str = ""


class LagAnswer(msgspec.Struct, frozen=True):
    """The lag of a group in every partition that it has committed or is assigned. `lag`: their sum. `lag_ms`: the
    largest one that was looked up."""

    group: str
    partitions: tuple[PartitionLag, ...]
    lag: Count
    lag_ms: Count | None
