"""What keeps the floor of a write-ahead log where it is: entries that are lost, and partitions that cannot be archived.

The archiver goes on with everything else. As long as there is any damage the floor stays, since an entry may only be
passed once each of its records is in a manifest (inv. 6). `ArchiveDamage` is owned by one `Archiver`; it looks again at
what it has found no more often than every `LOOK_AGAIN_S`, so that damage costs a few requests a minute.

- A **lost entry** was committed, and its object is missing or its bytes are not what was written.
- A **stuck partition** has a manifest that cannot be read, or lacks records below those that are to be archived.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tidelog.storage.errors import Corrupt
from tidelog.storage.layout import TopicPartition

K = TypeVar("K")
V = TypeVar("V")

LOOK_AGAIN_S = 30.0
"""Between two looks at what is damaged."""

LOOKED_AT_MAX = 16
"""Lost entries, and stuck partitions, that one look asks the store for."""

LOST_AT_ONCE_MAX = 64
"""Lost entries that one pass goes over before it lets others have their turn."""


@dataclass(frozen=True)
class LostEntry:
    """Entry `seq` of a shard, which was committed and cannot be read."""

    seq: int
    fault: Corrupt


@dataclass(frozen=True)
class StuckPartition:
    """A partition of which nothing can be archived until its manifest reaches up to `base_offset`."""

    topic: str
    place: TopicPartition
    base_offset: int
    fault: Corrupt


@dataclass
class ArchiveDamage:
    """What is damaged, as far as is known. False if nothing is."""

    entries: dict[int, LostEntry] = field(default_factory=dict)
    partitions: dict[TopicPartition, StuckPartition] = field(default_factory=dict)
    look_again_at_s: float = math.inf

    def __bool__(self) -> bool:
        return bool(self.entries or self.partitions)

    def first_fault(self) -> Corrupt | None:
        """Of an entry, else of a partition; None if nothing is damaged."""
        faults = [lost.fault for lost in self.entries.values()]
        faults += [stuck.fault for stuck in self.partitions.values()]
        return faults[0] if faults else None

    def lose(self, lost: LostEntry, now_s: float) -> None:
        """An entry is lost."""
        self._begin(now_s)
        self.entries[lost.seq] = lost

    def hold(self, stuck: StuckPartition, now_s: float) -> None:
        """A partition is stuck."""
        self._begin(now_s)
        self.partitions[stuck.place] = stuck

    def floor_is(self, number: int, now_s: float) -> bool:
        """The log begins with entry `number`: whether a lost entry lies below it. That was given up, and a look at the
        rest is due."""
        passed = [seq for seq in self.entries if seq < number]
        for seq in passed:
            del self.entries[seq]
        if passed:
            self.look_again_at_s = now_s if self else math.inf
        return bool(passed)

    def clear(self) -> None:
        """Something was mended: everything is found out anew."""
        self.entries.clear()
        self.partitions.clear()
        self.look_again_at_s = math.inf

    def looked_at(self, now_s: float) -> None:
        """A look found nothing mended."""
        self.look_again_at_s = now_s + LOOK_AGAIN_S

    def to_look_at(self) -> tuple[Sequence[LostEntry], Sequence[StuckPartition]]:
        """What the next look is at: the oldest first."""
        return _first(self.entries), _first(self.partitions)

    def _begin(self, now_s: float) -> None:
        if not self:
            self.looked_at(now_s)


def _first(found: Mapping[K, V]) -> Sequence[V]:
    return [found[key] for key in list(found)[:LOOKED_AT_MAX]]
