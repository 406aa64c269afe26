"""The strays that a sweep of the bucket finds, and the sums over them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


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
    topics and shards that were left alone, and why."""

    found: dict[str, int] = field(default_factory=dict)
    found_bytes: dict[str, int] = field(default_factory=dict)
    deleted: int = 0
    deleted_bytes: int = 0
    young: int = 0
    young_bytes: int = 0
    unjudged: dict[str, str] = field(default_factory=dict)

    def add(self, stray: Stray) -> None:
        reason = stray.reason.value
        self.found[reason] = self.found.get(reason, 0) + 1
        self.found_bytes[reason] = self.found_bytes.get(reason, 0) + stray.size_bytes
        if stray.deleted:
            self.deleted += 1
            self.deleted_bytes += stray.size_bytes

    def add_young(self, size_bytes: int) -> None:
        self.young += 1
        self.young_bytes += size_bytes
