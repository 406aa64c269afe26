"""The damage that holds the floor of a write-ahead log: lost entries, and topics and partitions that are stuck.

- A **lost entry** was committed, and its object is missing or damaged.
- A **stuck partition** has a gap: the records between its cold end and those to archive are in no segment and no entry.
- A **stuck topic** has a list, named by the shard's manifest, that is damaged, or that a later program wrote.

The archiver continues with everything else. The floor may pass an entry only once each of its records is in a segment
(inv. 6), so it stays before a lost entry, and stays where it is while anything is stuck. Each `Archiver` has its own
`ArchiveDamage`, and reads damaged objects again at most every `LOOK_AGAIN_S`, so that damage costs a few requests per
minute.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidelog.storage.errors import Corrupt, NewerFormat
from tidelog.storage.layout import TopicPartition

LOOK_AGAIN_S = 30.0
"""Between two reads of damaged objects."""

LOOKED_AT_MAX = 16
"""Lost entries, stuck partitions and stuck topics that are read again at a time, of each."""

LOST_AT_ONCE_MAX = 64
"""Lost entries that one pass skips before other shards have their turn."""


@dataclass(frozen=True)
class Stuck:
    """Why an entry, a topic or a partition cannot be archived. `topic`: the name. `base_offset`: a partition can be
    archived once its cold end, past its recorded losses, is there."""

    fault: Corrupt | NewerFormat
    topic: str = ""
    base_offset: int = 0


@dataclass
class ArchiveDamage:
    """The known damage: lost entries by number, stuck topics by id, and stuck partitions. False if there is none."""

    entries: dict[int, Stuck] = field(default_factory=dict)
    topics: dict[str, Stuck] = field(default_factory=dict)
    partitions: dict[TopicPartition, Stuck] = field(default_factory=dict)
    look_again_at_s: float = math.inf

    def __bool__(self) -> bool:
        return bool(self.entries or self.partitions or self.topics)

    def first_fault(self) -> Corrupt | NewerFormat | None:
        """The fault of an entry, else of a topic or partition; None if nothing is damaged."""
        for found in (self.entries, self.topics, self.partitions):
            for stuck in found.values():
                return stuck.fault
        return None

    def holds(self, number: int) -> bool:
        """Whether the floor may not move to `number`."""
        return bool(self.partitions or self.topics) or any(seq < number for seq in self.entries)

    def leaves_out(self, place: TopicPartition) -> bool:
        """Whether nothing of a partition can be archived."""
        return place in self.partitions or place.topic_id in self.topics

    def note(self, what: int | str | TopicPartition, stuck: Stuck, now_s: float) -> None:
        """Note a lost entry, a stuck topic or a stuck partition."""
        if not self:
            self.looked_at(now_s)
        if isinstance(what, int):
            self.entries[what] = stuck
        elif isinstance(what, str):
            self.topics[what] = stuck
        else:
            self.partitions[what] = stuck

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
        self.topics.clear()
        self.partitions.clear()
        self.look_again_at_s = math.inf

    def looked_at(self, now_s: float) -> None:
        """Note that no object was restored."""
        self.look_again_at_s = now_s + LOOK_AGAIN_S

    def to_look_at(self) -> tuple[Sequence[int], Sequence[str], Sequence[tuple[TopicPartition, Stuck]]]:
        """The entries, topics and partitions to read again next: the oldest first."""
        found = list(self.entries), list(self.topics), list(self.partitions.items())
        return found[0][:LOOKED_AT_MAX], found[1][:LOOKED_AT_MAX], found[2][:LOOKED_AT_MAX]
