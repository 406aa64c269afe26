"""The damage that holds the floor of a write-ahead log: lost entries, and topics and partitions that are stuck.

- A **lost entry** was committed, and its object is missing or damaged.
- A **stuck partition** has a gap: the records between its cold end and those to archive are in no segment and no entry.
- A **stuck topic** has a list, named by the shard's manifest, that cannot be read.

The archiver continues with everything else. The floor may pass an entry only once each of its records is in a segment
(inv. 6), so it stays before a lost entry, and stays where it is while anything is stuck. Each `Archiver` has its own
`ArchiveDamage`, and reads damaged objects again at most every `LOOK_AGAIN_S`, so that damage costs a few requests per
minute.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from tidelog.storage.errors import Corrupt
from tidelog.storage.layout import TopicPartition

K = TypeVar("K")
V = TypeVar("V")

LOOK_AGAIN_S = 30.0
"""Between two reads of damaged objects."""

LOOKED_AT_MAX = 16
"""Lost entries, stuck partitions and stuck topics that are read again at a time, of each."""

LOST_AT_ONCE_MAX = 64
"""Lost entries that one pass skips before other shards have their turn."""


@dataclass(frozen=True)
class LostEntry:
    """Entry `seq` of a shard, which was committed and cannot be read."""

    seq: int
    fault: Corrupt


@dataclass(frozen=True)
class StuckPartition:
    """A partition of which nothing can be archived until its cold end, past its recorded losses, is `base_offset`."""

    topic: str
    place: TopicPartition
    base_offset: int
    fault: Corrupt


@dataclass(frozen=True)
class StuckTopic:
    """A topic of which nothing can be archived until its list can be read."""

    topic: str
    topic_id: str
    fault: Corrupt


@dataclass
class ArchiveDamage:
    """The known damage. False if there is none."""

    entries: dict[int, LostEntry] = field(default_factory=dict)
    partitions: dict[TopicPartition, StuckPartition] = field(default_factory=dict)
    topics: dict[str, StuckTopic] = field(default_factory=dict)
    look_again_at_s: float = math.inf

    def __bool__(self) -> bool:
        return bool(self.entries or self.partitions or self.topics)

    def first_fault(self) -> Corrupt | None:
        """The fault of an entry, else of a topic or partition; None if nothing is damaged."""
        found = [lost.fault for lost in self.entries.values()]
        found += [stuck.fault for stuck in self.topics.values()]
        found += [stuck.fault for stuck in self.partitions.values()]
        return found[0] if found else None

    def holds(self, number: int) -> bool:
        """Whether the floor may not move to `number`."""
        return bool(self.partitions or self.topics) or any(seq < number for seq in self.entries)

    def leaves_out(self, place: TopicPartition) -> bool:
        """Whether nothing of a partition can be archived."""
        return place in self.partitions or place.topic_id in self.topics

    def lose(self, lost: LostEntry, now_s: float) -> None:
        """Note a lost entry."""
        self._begin(now_s)
        self.entries[lost.seq] = lost

    def hold(self, stuck: StuckPartition, now_s: float) -> None:
        """Note a stuck partition."""
        self._begin(now_s)
        self.partitions[stuck.place] = stuck

    def hold_topic(self, stuck: StuckTopic, now_s: float) -> None:
        """Note a stuck topic."""
        self._begin(now_s)
        self.topics[stuck.topic_id] = stuck

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
        self.topics.clear()
        self.look_again_at_s = math.inf

    def looked_at(self, now_s: float) -> None:
        """Note that no object was restored."""
        self.look_again_at_s = now_s + LOOK_AGAIN_S

    def to_look_at(self) -> tuple[Sequence[LostEntry], Sequence[StuckPartition], Sequence[StuckTopic]]:
        """The damage to read again next: the oldest first."""
        return _first(self.entries), _first(self.partitions), _first(self.topics)

    def _begin(self, now_s: float) -> None:
        if not self:
            self.looked_at(now_s)


def _first(found: Mapping[K, V]) -> Sequence[V]:
    return list(islice(found.values(), LOOKED_AT_MAX))
