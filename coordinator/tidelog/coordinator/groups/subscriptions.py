"""To which topics the members of a group subscribe, by name and by pattern.

Patterns are RE2 expressions that match the whole name of a topic, as in KIP-848. RE2 takes time linear in the
text for every pattern, so no pattern can block the coordinator. The engine is the one in pyarrow.

Members with the same subscription share one `Subscription`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import compress

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.coordinator.groups.group_step import TopicInfo, Topics
from tidelog.storage.errors import Invalid

PATTERNS_REMEMBERED = 1_000


@dataclass(eq=False)
class Subscription:
    """`topics`: the names, and what the pattern matches. `present`: those that exist. `members`: how many have it."""

    names: frozenset[str]
    pattern: str | None
    topics: frozenset[str] = frozenset()
    present: frozenset[str] = frozenset()
    members: int = 0

    def resolve(self, topics: Topics) -> bool:
        """Look at `topics`; return whether `topics` of this subscription changed."""
        before = self.topics
        self.topics = self.names | matching(self.pattern, topics) if self.pattern is not None else self.names
        self.present = frozenset(topic for topic in self.topics if topic in topics)
        return self.topics != before


@dataclass
class Subscriptions:
    """All subscriptions of a group."""

    _topics: Topics = field(default_factory=dict)
    _by_content: dict[tuple[frozenset[str], str | None], Subscription] = field(default_factory=dict)
    _seen: dict[str, TopicInfo] = field(default_factory=dict)

    def add(self, names: Iterable[str], pattern: str | None) -> Subscription:
        """The subscription of one more member."""
        key = (frozenset(names), pattern)
        found = self._by_content.get(key)
        if found is None:
            found = self._by_content[key] = Subscription(*key)
            found.resolve(self._topics)
            self._remember()
        found.members += 1
        return found

    def remove(self, subscription: Subscription) -> None:
        """A member left or subscribes to something else."""
        subscription.members -= 1
        if subscription.members == 0:
            del self._by_content[(subscription.names, subscription.pattern)]
            self._remember()

    def notice(self, topics: Topics) -> bool:
        """Look at `topics`, which must have changed; return whether that changes what the members subscribe to."""
        self._topics = topics
        for subscription in self._by_content.values():
            subscription.resolve(topics)
        before = self._seen
        self._remember()
        return _sizes(self._seen) != _sizes(before)

    @property
    def topics(self) -> dict[str, TopicInfo]:
        """The existing topics to which a member subscribes."""
        return self._seen

    def includes(self, topic: str) -> bool:
        return any(topic in subscription.topics for subscription in self._by_content.values())

    def _remember(self) -> None:
        names: frozenset[str] = frozenset().union(*(each.present for each in self._by_content.values()))
        self._seen = {name: self._topics[name] for name in sorted(names)}


def matching(pattern: str, topics: Topics) -> frozenset[str]:
    """The names among `topics` that `pattern` matches as a whole."""
    names = tuple(topics)
    return frozenset(compress(names, _matches(names, pattern)))


def check_pattern(pattern: str) -> None:
    """Raise `Invalid` unless `pattern` is an RE2 expression."""
    wrong = _defect(pattern)
    if wrong is not None:
        raise Invalid(f"topic_pattern is not an RE2 expression: {wrong}", field="topic_pattern")


@lru_cache(PATTERNS_REMEMBERED)
def _defect(pattern: str) -> str | None:
    """Why `pattern` is invalid; None: it is valid. Members may send their pattern with each heartbeat."""
    try:
        _matches(("",), pattern)
    except pa.ArrowInvalid as error:
        return str(error)
    return None


def _matches(names: tuple[str, ...], pattern: str) -> list[bool | None]:
    return pc.match_substring_regex(pa.array(names, pa.string()), rf"\A(?:{pattern})\z").to_pylist()


def _sizes(topics: dict[str, TopicInfo]) -> dict[str, tuple[str, int]]:
    return {name: (info.topic_id, info.partitions) for name, info in topics.items()}
