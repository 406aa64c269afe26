"""All errors that Tidelog raises, in a tree by what the caller does next.

    TidelogError
    ├── Invalid              the input is wrong: change it, then send again
    │   ├── OutOfRange       the offset or time asked for is not in the log; carries the range that is
    │   ├── TooLarge         above a named limit, which it carries
    │   └── UnsupportedMedia a content type or encoding that Tidelog does not know
    ├── NotFound             no such topic, partition or object
    │   ├── NoSuchObject     the store has no such object: another broker may have moved its records
    │   └── UnknownMember    the group has no such member or instance: join again
    │       └── UnknownGroup     there is no such group, so it has no such member
    ├── Conflict             another writer was first: read what is there and decide
    │   ├── AlreadyExists        a topic of that name exists
    │   ├── OffsetConflict       `expected_offset` is not the next offset; carries the next one
    │   ├── SequenceConflict     a producer's sequence has a gap; carries the expected one
    │   ├── ProducerFenced       a newer epoch of the same producer id has written
    │   ├── MemberFenced         a group has given the member's partitions to others: join again
    │   ├── StaleMemberEpoch     the member's epoch is older than the group's for it: send a heartbeat first
    │   ├── InstanceInUse        another member of the group has the same instance id
    │   ├── GroupNotEmpty        the group has members
    │   ├── WrongGroupKind       the group is of the other kind, or its members share no protocol
    │   ├── MemberIdRequired     join again with the member id that it carries
    │   └── RebalanceInProgress  the members of a classic group have to join again
    ├── Fenced               this process is not the leader any more: find the leader
    ├── Denied               credentials or permissions: an operator has to act
    ├── Unavailable          try again later; **the outcome is unknown**
    │   ├── Contended        the store was busy with the same key and did nothing (S3's 409)
    │   └── Overloaded       a limit is reached and nothing was done; carries when to try again
    │       ├── GroupFull        the group has as many members as it may have
    │       ├── NotLeader        another broker leads the shard; carries its address
    │       └── LeaderUnknown    the shard is moving from one broker to another
    ├── NewerFormat          a later version of Tidelog wrote it: an operator has to install that version
    └── Corrupt              the bytes are not those that were written; carries the object's name
        └── RecordsLost          so records cannot be read; carries their offsets and the next readable one

A message says what is wrong and what to do. One table decides the HTTP status of each error: `tidelog.wire.errors`.
"""

from __future__ import annotations


class TidelogError(Exception):
    """Root of the tree. `str(error)` is a message for the person who has to act."""


class Invalid(TidelogError):
    """The input is wrong. `field` names the wrong part, if there is one; `record` is the index, from 0, of the wrong
    record of a batch, if there is one."""

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
    """Larger than `limit_bytes`, which the setting `limit_name` sets."""

    def __init__(self, message: str, *, limit_name: str, limit_bytes: int, record: int | None = None) -> None:
        super().__init__(message, record=record)
        self.limit_name = limit_name
        self.limit_bytes = limit_bytes


class UnsupportedMedia(Invalid):
    """An unknown Content-Type, Content-Encoding or Accept; `known` lists the known ones."""

    def __init__(self, message: str, *, known: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.known = known


class NotFound(TidelogError):
    """No such object, topic or partition."""


class NoSuchObject(NotFound):
    """The store has no such object. The topic or partition may exist, so a client does not get `not_found`: a reader
    whose records moved looks where they are now, or tries again."""


class Conflict(TidelogError):
    """Another writer was first (S3's 412): read what is there and decide."""


class AlreadyExists(Conflict):
    """A topic of that name exists."""


class OffsetConflict(Conflict):
    """`expected_offset` is not the partition's next offset, `next_offset`."""

    def __init__(self, message: str, *, next_offset: int) -> None:
        super().__init__(message)
        self.next_offset = next_offset


class SequenceConflict(Conflict):
    """A producer's sequence has a gap, or is older than the remembered ones; `expected_sequence` is the next one."""

    def __init__(self, message: str, *, expected_sequence: int) -> None:
        super().__init__(message)
        self.expected_sequence = expected_sequence


class ProducerFenced(Conflict):
    """A newer epoch of the same producer id, `current_epoch`, has written."""

    def __init__(self, message: str, *, current_epoch: int) -> None:
        super().__init__(message)
        self.current_epoch = current_epoch


class UnknownMember(NotFound):
    """The group has no such member or instance: it left, or its session ended. Join again."""


class UnknownGroup(UnknownMember):
    """There is no such group, so it has no such member. Join again, and the group is there."""


class MemberFenced(Conflict):
    """The member's epoch is not the one that its group has for it, and its partitions may belong to others: drop them
    and join again."""


class StaleMemberEpoch(Conflict):
    """The member is in a later epoch than the request says: send a heartbeat, then repeat the request if the partition
    is still assigned."""


class InstanceInUse(Conflict):
    """Another living member of the group has the same instance id."""


class GroupNotEmpty(Conflict):
    """The group has members, or they subscribe to the topic, so the call is refused."""


class WrongGroupKind(Conflict):
    """The group is of the other kind, or the member offers no protocol that all members of a classic group offer."""


class MemberIdRequired(Conflict):
    """Join the classic group again, with `member_id`."""

    def __init__(self, message: str, *, member_id: str) -> None:
        super().__init__(message)
        self.member_id = member_id


class RebalanceInProgress(Conflict):
    """The classic group changes its assignment: join again."""


class Fenced(TidelogError):
    """Another leader has begun a later epoch in this log. `committed`: partitions of the request that are in the
    log."""

    committed: tuple[int, ...] = ()


class Denied(TidelogError):
    """The store refused the credentials or the permission. `committed` as in `Unavailable`."""

    committed: tuple[int, ...] = ()


class Unavailable(TidelogError):
    """The store or broker could not answer. It is unknown whether the request took effect, except for its partitions
    `committed`, which are in the log."""

    committed: tuple[int, ...] = ()


class Contended(Unavailable):
    """The store was busy with the same key and did nothing (S3's 409): send it again."""


class Overloaded(Unavailable):
    """A limit is reached and nothing was done; try again after `retry_after_s` seconds."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class GroupFull(Overloaded):
    """The group has as many members as ``group.max.size`` allows."""


class NotLeader(Overloaded):
    """Another broker, at `leader` (``http://HOST:PORT``), leads the partition's shard. Nothing was done."""

    def __init__(self, message: str, *, leader: str, retry_after_s: float = 0.1) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.leader = leader


class LeaderUnknown(Overloaded):
    """The partition's shard has no leader at this moment, or none is known. Nothing was done."""


class NewerFormat(TidelogError):
    """A later version of Tidelog wrote the object `name`, or raised the cluster's feature level. Nothing is damaged."""

    def __init__(self, message: str, *, name: str = "") -> None:
        super().__init__(message)
        self.name = name
        self.reason = message.removeprefix(f"{name}: ")


class Corrupt(TidelogError):
    """The object `name` is truncated, damaged, foreign, or of a version that no released Tidelog wrote."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


class RecordsLost(Corrupt):
    """Offsets ``[first_offset, next_offset)`` of a partition cannot be read: the object `name` that holds them is
    missing or damaged, or they are recorded as lost. A reader continues at `next_offset`."""

    def __init__(self, name: str, reason: str, *, first_offset: int, next_offset: int) -> None:
        super().__init__(name, reason)
        self.first_offset = first_offset
        self.next_offset = next_offset
