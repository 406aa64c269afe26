"""What a check of the bucket has to say, and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class Severity(Enum):
    """ERROR: an invariant is broken or bytes are damaged. WARNING: it may be in order, a person should look.
    ORPHAN: an object that nothing names, left to the sweep unless a write is just under way. LOSS: records that are
    recorded as lost; nothing is to be done."""

    ERROR = "error"
    WARNING = "warning"
    ORPHAN = "orphan"
    LOSS = "loss"


@dataclass(frozen=True)
class Finding:
    """`key` is an object's, or a prefix; `text` a clause about it."""

    severity: Severity
    key: str
    text: str
    size_bytes: int = 0


@dataclass(frozen=True)
class Looked:
    """So many objects were looked at. `waiting`: they left the log and wait for their deletion, as they should."""

    size_bytes: int
    objects: int = 1
    waiting: bool = False


Seen = Finding | Looked


@dataclass(frozen=True)
class Progress:
    """Objects looked at so far, and the bytes they have."""

    objects: int = 0
    size_bytes: int = 0

    def plus(self, objects: int, size_bytes: int) -> Progress:
        return Progress(self.objects + objects, self.size_bytes + size_bytes)


@dataclass(frozen=True)
class Summary:
    """What a walk came to. Sizes in bytes; `waiting` objects left the log and wait for their deletion."""

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
        """No record is damaged or missing, but for those that are recorded as lost."""
        return self.errors == 0

    def after(self, seen: Seen) -> Summary:
        """With one more thing seen."""
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
