"""The rules of the judge, and a violation of a rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class Rule(Enum):
    """What a history must satisfy; the value is the sentence that a report prints."""

    NOTHING_RECORDED = "the history holds appends, and a final read of every partition that was appended to"
    UNEXCUSED = "an operation fails only during a fault or shortly after it"
    LOST = "an acknowledged record is in the log"
    ACKS_1_LOSS = "a fault loses only acks=1 records of a short time, and calm weather none"
    DUPLICATED = "a record is in the log at most once"
    MISPLACED = "an acknowledged record is at the partition and offset it was acknowledged with"
    NOT_DENSE = "offsets follow each other from the log start, without gap or overlap"
    LOG_START = "a log begins at 0, or at an offset up to which somebody asked to delete"
    INVENTED = "every record in the log was sent, to that topic and partition"
    REFUSED_YET_TAKEN = "a record that was refused as not taken is not in the log"
    TORN = "the records that one request sent to one partition stand together, all of them or none"
    REORDERED = "the values of a request, and of a producer with sequences, stand in the order they were sent"
    SEQUENCE_GAP = "if a value of a producer with sequences is in the log, so are its earlier values"
    KEY_MOVED = "all values of one key are in one partition"
    DISAGREEMENT = "all readers see the same record at an offset"
    WENT_BACK = "a reader never goes back"
    SKIPPED = "a reader skips nothing"
    CUT_OFF = "an offset that is acknowledged, or that a reader has reached, is in range"
    UNDELETED = "no reader gets a record after its deletion was acknowledged"
    APPEND_ORDER = "an append that was acknowledged or seen before another began has the lower offset"
    EXPECTED_OFFSET = "an append with an expected offset is placed there or not at all"
    CONFLICT_ANSWER = "the next offset in a conflict was the partition's at some moment of the request"
    TWO_OWNERS = "within sessions, a partition has one owner in a group"
    STALE_COMMIT = "a group refuses a commit from an older epoch than one that it knows for the member or the partition"
    STALE_READ = "nobody polls records in an older epoch after a newer one has committed"
    COMMIT_LOST = "a member begins where the group has last committed"
    COMMIT_WENT_BACK = "the committed offset of a group never goes back"
    UNREAD = "every record below a committed offset was given to a member of the group"
    END_ANSWER = "the end in an empty read or a query was the partition's at some moment of the request"


@dataclass(frozen=True, slots=True)
class Violation:
    """One violation; `detail` names the client, the record and the place."""

    rule: Rule
    detail: str

    def __str__(self) -> str:
        return f"{self.rule.name}: {self.detail} (rule: {self.rule.value})"


Findings = Iterator[Violation]
"""What a rule yields while it goes through a history."""
