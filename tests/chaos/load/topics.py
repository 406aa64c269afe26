"""The special topics: their settings, and the promises that these settings remove."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.chaos.checker.history import TopicRules

COMPACTED, EXPIRING, TRIMMED = "compacted", "expiring", "trimmed"
FAST, SHIPPED, ARROW, GROWING = "fast", "shipped", "arrow", "growing"
REMADE = "remade"
"""The prefix of the topics that `Remaker` creates and deletes."""

SEGMENT_MS = 5_000
RETENTION_MS = 20_000


@dataclass(frozen=True)
class SpecialTopic:
    """`rules` describe the topic as its configs make it."""

    rules: TopicRules
    partitions: int = 1
    configs: Mapping[str, object] = field(default_factory=dict)


SPECIAL: Mapping[str, SpecialTopic] = {
    special.rules.topic: special
    for special in (
        SpecialTopic(
            TopicRules(COMPACTED, compacted=True),
            configs={"cleanup.policy": "compact", "segment.ms": SEGMENT_MS, "min.cleanable.dirty.ratio": "0.1"},
        ),
        SpecialTopic(
            TopicRules(EXPIRING, expires=True), configs={"retention.ms": RETENTION_MS, "segment.ms": SEGMENT_MS}
        ),
        SpecialTopic(TopicRules(TRIMMED)),
        SpecialTopic(TopicRules(FAST)),
        SpecialTopic(TopicRules(SHIPPED), partitions=2),
        SpecialTopic(TopicRules(ARROW)),
        SpecialTopic(TopicRules(GROWING, grows=True)),
    )
}
