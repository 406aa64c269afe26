"""The findings of a check of the bucket, and the summary that they add up to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import Enum

from tidelog.storage.errors import Corrupt, NewerFormat


class Severity(Enum):
    """ERROR: an invariant is broken, or bytes are damaged. WARNING: possibly harmless; a person should look.
    ORPHAN: an object that nothing names; unless a write is in progress, the sweep deletes it. LOSS: records that are
    recorded as lost; nothing is to be done."""

    ERROR = "error"
    WARNING = "warning"
    ORPHAN = "orphan"
    LOSS = "loss"


@dataclass(frozen=True)
class Finding:
    """`key` is the key of an object, or a prefix. `text` is a clause whose subject is that object."""

    severity: Severity
    key: str
    text: str
    size_bytes: int = 0


@dataclass(frozen=True)
class Looked:
    """This many objects were checked. `waiting`: they are no longer part of the log and wait for their deletion."""

    size_bytes: int
    objects: int = 1
    waiting: bool = False


Seen = Finding | Looked
Report = Callable[[Seen], Awaitable[None]]
"""A check calls it with each finding, and with each object once it is checked."""


def error(key: str, text: str, size_bytes: int = 0) -> Finding:
    return Finding(Severity.ERROR, key, text, size_bytes)


UNREADABLE = (Corrupt, NewerFormat)
Unreadable = Corrupt | NewerFormat


def unreadable(fault: Unreadable, size_bytes: int = 0, *, harm: str = "") -> Finding:
    """The finding about an object that is damaged, or that only a later version of Tidelog can check. `harm`: a clause
    that says what damage harms, and what to do about it."""
    key, _, text = str(fault).partition(": ")
    return error(key, f"{text}: {harm}" if harm and isinstance(fault, Corrupt) else text, size_bytes)


def warning(key: str, text: str, size_bytes: int = 0) -> Finding:
    return Finding(Severity.WARNING, key, text, size_bytes)


def stranger(key: str, size_bytes: int) -> Finding:
    """The finding about an object that Tidelog did not write."""
    return warning(key, "is not an object of Tidelog", size_bytes)


@dataclass(frozen=True)
class Summary:
    """The counts of a walk; sizes in bytes. `waiting` counts objects that wait for their deletion."""

    objects: int = 0
    size_bytes: int = 0
    errors: int = 0
    warnings: int = 0
    orphans: int = 0
    orphan_bytes: int = 0
    waiting: int = 0
    waiting_bytes: int = 0
    losses: int = 0

    @property
    def sound(self) -> bool:
        """No record is damaged or missing, except those that are recorded as lost."""
        return self.errors == 0

    def after(self, seen: Seen) -> Summary:
        """The summary with `seen` counted as well."""
        if isinstance(seen, Looked):
            waiting = (seen.objects, seen.size_bytes) if seen.waiting else (0, 0)
            return replace(
                self,
                objects=self.objects + seen.objects,
                size_bytes=self.size_bytes + seen.size_bytes,
                waiting=self.waiting + waiting[0],
                waiting_bytes=self.waiting_bytes + waiting[1],
            )
        if seen.severity is Severity.ERROR:
            return replace(self, errors=self.errors + 1)
        if seen.severity is Severity.WARNING:
            return replace(self, warnings=self.warnings + 1)
        if seen.severity is Severity.LOSS:
            return replace(self, losses=self.losses + 1)
        return replace(self, orphans=self.orphans + 1, orphan_bytes=self.orphan_bytes + seen.size_bytes)
