"""What a check of the bucket has to say of an object."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """ERROR: an invariant is broken or bytes are damaged. WARNING: it may be in order, a person should look.
    ORPHAN: an object that nothing names, garbage unless a write is just under way."""

    ERROR = "error"
    WARNING = "warning"
    ORPHAN = "orphan"


@dataclass(frozen=True)
class Finding:
    """`key` is an object's, or a prefix; `text` a clause about it."""

    severity: Severity
    key: str
    text: str
    size_bytes: int = 0


@dataclass(frozen=True)
class Progress:
    """Objects looked at so far, and the bytes they have."""

    objects: int = 0
    size_bytes: int = 0

    def plus(self, size_bytes: int) -> Progress:
        return Progress(self.objects + 1, self.size_bytes + size_bytes)
