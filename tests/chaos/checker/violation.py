"""The rules, and what breaks them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class Rule(Enum):
    """What a history must keep; the value is the sentence that a report prints."""

    LOST = "an acknowledged record is in the log"
    DUPLICATED = "a record is in the log at most once"
    MISPLACED = "an acknowledged record is at the partition and offset it was acknowledged with"
    NOT_DENSE = "offsets follow each other from 0, without gap or overlap"
    INVENTED = "every record in the log was sent, to that topic and partition"
    REFUSED_YET_TAKEN = "what was refused as not taken is not in the log"
    TORN = "what one request sent to one partition stands together, all of it or nothing"
    REORDERED = "the values of a request, and of a producer with sequences, stand in the order they were sent"
    KEY_MOVED = "all values of one key are in one partition"
    DISAGREEMENT = "all readers see the same record at an offset"
    WENT_BACK = "a reader never goes back"
    SKIPPED = "a reader skips nothing"
    CUT_OFF = "an offset that a reader has reached stays in range"
    APPEND_ORDER = "an append that was acknowledged or seen before another began has the lower offset"
    EXPECTED_OFFSET = "an append with an expected offset is placed there or not at all"
    CONFLICT_ANSWER = "the next offset that a conflict tells was the partition's at some moment of the request"


@dataclass(frozen=True, slots=True)
class Violation:
    """One breach; `detail` names the client, the record and the place."""

    rule: Rule
    detail: str

    def __str__(self) -> str:
        return f"{self.rule.name}: {self.detail} (rule: {self.rule.value})"


Findings = Iterator[Violation]
"""What a rule yields as it goes through a history."""
