"""The damage that holds the floor of a write-ahead log: lost entries, and partitions that cannot be archived.

- A **lost entry** was committed, and its object is missing or damaged.
- A **stuck partition** has a manifest that cannot be read, or that lacks records below those to archive.

The archiver continues with everything else. While there is any damage the floor stays, because it may pass an entry
only once each of its records is in a manifest (inv. 6). Each `Archiver` has its own `ArchiveDamage`, and reads damaged
objects again at most every `LOOK_AGAIN_S`, so that damage costs a few requests per minute.
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
"""Between two reads of damaged objects."""

LOOKED_AT_MAX = 16
"""Lost entries, and stuck partitions, that are read again at a time."""

LOST_AT_ONCE_MAX = 64
"""Lost entries that one pass skips before other shards have their turn."""


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
    """The known damage. False if there is none."""

    entries: dict[int, LostEntry] = field(default_factory=dict)
    partitions: dict[TopicPartition, StuckPartition] = field(default_factory=dict)
    look_again_at_s: float = math.inf

    def __bool__(self) -> bool:
        return bool(self.entries or self.partitions)

    def first_fault(self) -> Corrupt | None:
        """The fault of an entry, else of a partition; None if nothing is damaged."""
        faults = [lost.fault for lost in self.entries.values()]
        faults += [stuck.fault for stuck in self.partitions.values()]
        return faults[0] if faults else None

    def lose(self, lost: LostEntry, now_s: float) -> None:
        """Note a lost entry."""
        self._begin(now_s)
        self.entries[lost.seq] = lost

    def hold(self, stuck: StuckPartition, now_s: float) -> None:
        """Note a stuck partition."""
        self._begin(now_s)
        self.partitions[stuck.place] = stuck

    def floor_is(self, number: int, now_s: float) -> bool:
        """Note that the floor is `number`. Returns whether it has passed a lost entry, which a repair gave up; then the
        other damage is due to be read again."""
        passed = [seq for seq in self.entries if seq < number]
        for seq in passed:
            del self.entries[seq]
        if passed:
            self.look_again_at_s = now_s if self else math.inf
        return bool(passed)

    def clear(self) -> None:
        """Forget all damage, because an object was restored: the next pass finds the rest again."""
        self.entries.clear()
        self.partitions.clear()
        self.look_again_at_s = math.inf

    def looked_at(self, now_s: float) -> None:
        """Note that no object was restored."""
        self.look_again_at_s = now_s + LOOK_AGAIN_S

    def to_look_at(self) -> tuple[Sequence[LostEntry], Sequence[StuckPartition]]:
        """The damage to read again next: the oldest first."""
        return _first(self.entries), _first(self.partitions)

    def _begin(self, now_s: float) -> None:
        if not self:
            self.looked_at(now_s)


def _first(found: Mapping[K, V]) -> Sequence[V]:
    return [found[key] for key in list(found)[:LOOKED_AT_MAX]]
