"""Every error Tidelog raises, sorted by what the caller does next.

    TidelogError
    ├── Invalid              the input is wrong: change it, then send again
    │   ├── OutOfRange       the offset or time asked for is not in the log; carries the range that is
    │   ├── TooLarge         over a limit that has a name; carries it
    │   └── UnsupportedMedia the bytes are of a kind not spoken here
    ├── NotFound             there is no such topic, partition or object
    │   └── NoSuchObject     the store has no such object: another broker may have moved what it held
    ├── Conflict             another came first: read what is there and decide
    │   ├── AlreadyExists        a topic of that name
    │   ├── OffsetConflict       `expected_offset` was not the next one; carries the next one
    │   ├── SequenceConflict     a producer's sequence has a gap; carries the one expected
    │   └── ProducerFenced       a newer epoch of the same producer id has written
    ├── Fenced               this process leads no longer: find the leader
    ├── Denied               credentials or permissions: an operator has to act
    ├── Unavailable          try again later; **nothing is known of the outcome**
    │   ├── Contended        the store was busy with the same key and did nothing (S3's 409)
    │   └── Overloaded       a bound is reached; nothing was taken; carries when to come back
    │       ├── NotLeader        another broker leads the shard; carries its address
    │       └── LeaderUnknown    the shard is on its way from one broker to another
    └── Corrupt              the bytes are not what was written; carries the object's name
        └── RecordsLost          so records cannot be read; carries which offsets, and the next one that can

A message says what was wrong and what to do. The HTTP status of each is decided in one place,
`tidelog.services.http.answers.problems`.
"""

from __future__ import annotations


class TidelogError(Exception):
    """Root of the tree. `str(error)` is a sentence for the person who has to act."""


class Invalid(TidelogError):
    """The input is wrong. `field` names the part of it, where one is to blame; `record` is the index of the record,
    from 0, where one record of a batch is to blame."""

    def __init__(self, message: str, *, field: str | None = None, record: int | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.record = record


class OutOfRange(Invalid):
    """An offset outside ``[log_start_offset, high_watermark]``."""

    def __init__(self, message: str, *, log_start_offset: int, high_watermark: int) -> None:
        super().__init__(message, field="offset")
        self.log_start_offset = log_start_offset
        self.high_watermark = high_watermark


class TooLarge(Invalid):
    """Over `limit_bytes`; `limit_name` is the setting that bounds it."""

    def __init__(self, message: str, *, limit_name: str, limit_bytes: int, record: int | None = None) -> None:
        super().__init__(message, record=record)
        self.limit_name = limit_name
        self.limit_bytes = limit_bytes


class UnsupportedMedia(Invalid):
    """A Content-Type, Content-Encoding or Accept that is not spoken here; `known` lists those that are."""

    def __init__(self, message: str, *, known: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.known = known


class NotFound(TidelogError):
    """No such object, topic or partition."""


class NoSuchObject(NotFound):
    """The store has no such object. It says nothing of topics and partitions, so no client is told `not_found`: who
    reads a log that moves looks where its records are now, or asks again."""


class Conflict(TidelogError):
    """Another came first (S3's 412): read what is there and decide."""


class AlreadyExists(Conflict):
    """A topic of that name exists."""


class OffsetConflict(Conflict):
    """`expected_offset` was not the partition's next offset, which `next_offset` tells."""

    def __init__(self, message: str, *, next_offset: int) -> None:
        super().__init__(message)
        self.next_offset = next_offset


class SequenceConflict(Conflict):
    """A producer's sequence has a gap, or lies before what is remembered; `expected_sequence` goes on."""

    def __init__(self, message: str, *, expected_sequence: int) -> None:
        super().__init__(message)
        self.expected_sequence = expected_sequence


class ProducerFenced(Conflict):
    """A newer epoch of the same producer id has written; `current_epoch` is it."""

    def __init__(self, message: str, *, current_epoch: int) -> None:
        super().__init__(message)
        self.current_epoch = current_epoch


class Fenced(TidelogError):
    """Another leader has begun a later epoch on this log. `committed`: partitions of the request that are in it."""

    committed: tuple[int, ...] = ()


class Denied(TidelogError):
    """The store refused the credentials or the permission. `committed` as `Unavailable` has it."""

    committed: tuple[int, ...] = ()


class Unavailable(TidelogError):
    """The store or broker could not answer. Whether the request took effect is unknown, but for the partitions
    `committed` of it, which are in the log."""

    committed: tuple[int, ...] = ()


class Contended(Unavailable):
    """The store was busy with the same key and did nothing (S3's 409): send it again."""


class Overloaded(Unavailable):
    """A bound is reached and nothing was taken; come back after `retry_after_s` seconds."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotLeader(Overloaded):
    """Another broker leads the partition's shard, at `leader` (``http://HOST:PORT``). Nothing was taken."""

    def __init__(self, message: str, *, leader: str, retry_after_s: float = 0.1) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.leader = leader


class LeaderUnknown(Overloaded):
    """The partition's shard has no leader at this moment, or none is known. Nothing was taken."""


class Corrupt(TidelogError):
    """The object `name` does not hold what was written: truncated, flipped, foreign or of an unknown version."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


class RecordsLost(Corrupt):
    """Offsets ``[first_offset, next_offset)`` of a partition cannot be read: the object `name` that holds them is
    missing or damaged, or they are recorded as lost. A reader that goes on does so at `next_offset`."""

    def __init__(self, name: str, reason: str, *, first_offset: int, next_offset: int) -> None:
        super().__init__(name, reason)
        self.first_offset = first_offset
        self.next_offset = next_offset
