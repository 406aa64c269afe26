"""Topic metadata for tools that look at a whole bucket (verify, sweep, copy, repair).

Storage does not know the journal. The coordinator reads it and passes a `TopicKnowledge` in.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class KnownTopic:
    """A topic. `shards[p]` is the shard of partition `p`. `removing`: the topic was deleted, and its objects are being
    removed."""

    name: str
    topic_id: str
    shards: tuple[int, ...]
    removing: bool = False


class TopicKnowledge(Protocol):
    """Both methods raise `Corrupt`, `Unavailable`."""

    async def topics(self) -> Mapping[str, KnownTopic]:
        """All topics by id, as of now, including those that are being removed. A topic is listed here before its first
        object is in the bucket."""
        ...

    async def deleted(self, topic_ids: Collection[str]) -> Collection[str]:
        """Those of `topic_ids` that were certainly deleted. A topic that is in neither answer is unknown: the journal
        lost entries, or belongs to another bucket."""
        ...


@dataclass(frozen=True)
class JournalView:
    """The journal's answer about some topic ids: `topics` exist or are being removed, `deleted` ids were deleted."""

    topics: Mapping[str, KnownTopic]
    deleted: frozenset[str]

    def is_deleted(self, topic_id: str) -> bool:
        topic = self.topics.get(topic_id)
        return topic_id in self.deleted if topic is None else topic.removing

    def is_unknown(self, topic_id: str) -> bool:
        return topic_id not in self.topics and topic_id not in self.deleted


async def journal_view(knowledge: TopicKnowledge, topic_ids: Collection[str]) -> JournalView:
    """What the journal says about `topic_ids` now. Raises `Corrupt`, `Unavailable`."""
    topics = await knowledge.topics()
    others = set(topic_ids) - topics.keys()
    return JournalView(topics, frozenset(await knowledge.deleted(others) if others else ()))


async def live_topics(knowledge: TopicKnowledge) -> Mapping[str, KnownTopic]:
    """The topics that exist now, by id. Raises `Corrupt`, `Unavailable`."""
    return {key: topic for key, topic in (await knowledge.topics()).items() if not topic.removing}
