"""Topics that a test declares, for bucket-wide tools without a coordinator."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tests.storage.record_tables import SHOP, WEB

from tidelog.storage.bucket.known_topics import KnownTopic


def known(name: str, topic_id: str, *shards: int, removing: bool = False) -> dict[str, KnownTopic]:
    return {topic_id: KnownTopic(name, topic_id, shards, removing)}


def scene_topics() -> dict[str, KnownTopic]:
    """The topics of `archive_scenes`, all in shard 0."""
    return known("web", WEB.topic_id, 0, 0) | known("shop", SHOP.topic_id, 0)


@dataclass
class SaidTopics:
    """Implements `TopicKnowledge`."""

    present: Mapping[str, KnownTopic] = field(default_factory=scene_topics)
    gone: Collection[str] = ()

    async def topics(self) -> Mapping[str, KnownTopic]:
        return self.present

    async def deleted(self, topic_ids: Collection[str]) -> Collection[str]:
        return {topic_id for topic_id in topic_ids if topic_id in self.gone}
