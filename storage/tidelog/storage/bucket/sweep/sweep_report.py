"""The strays that a sweep of the bucket finds, and the sums over them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

UNJUDGED_MAX = 10_000
"""Objects and folders that a sweep names among those that it left alone."""


class Reason(Enum):
    """Why an object is stray."""

    UPLOAD = "upload"
    DELETED_TOPIC = "deleted-topic"
    STAGING = "staging"
    PARTIAL = "partial"


@dataclass(frozen=True)
class Stray:
    """An object that nothing will read again. `age_ms` is measured by the store's clock."""

    key: str
    size_bytes: int
    reason: Reason
    age_ms: int
    deleted: bool


@dataclass
class SweepReport:
    """The number and bytes of the strays by reason, and of the objects that were too young to be judged. `unjudged`:
    objects and folders that were left alone, and why; `more_unjudged`: so many others, beyond `UNJUDGED_MAX`."""

    found: dict[str, int] = field(default_factory=dict)
    found_bytes: dict[str, int] = field(default_factory=dict)
    deleted: int = 0
    deleted_bytes: int = 0
    young: int = 0
    young_bytes: int = 0
    unjudged: dict[str, str] = field(default_factory=dict)
    more_unjudged: int = 0

    def add(self, stray: Stray) -> None:
        reason = stray.reason.value
        self.found[reason] = self.found.get(reason, 0) + 1
        self.found_bytes[reason] = self.found_bytes.get(reason, 0) + stray.size_bytes
        if stray.deleted:
            self.deleted += 1
            self.deleted_bytes += stray.size_bytes

    def leave(self, key: str, text: str) -> None:
        """Note that the object or folder `key` was left alone."""
        if key in self.unjudged or len(self.unjudged) < UNJUDGED_MAX:
            self.unjudged[key] = text
        else:
            self.more_unjudged += 1

    def add_young(self, size_bytes: int) -> None:
        self.young += 1
        self.young_bytes += size_bytes
