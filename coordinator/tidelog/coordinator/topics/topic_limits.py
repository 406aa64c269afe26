"""How many topics there may be, and how many partitions: a broker keeps each of them in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.coordinator.topics.topic import Topic
from tidelog.storage.errors import Invalid


@dataclass(frozen=True)
class TopicLimits:
    """`topics` in all, `topic_partitions` of one topic, `partitions` of all topics. What is there already when a limit
    is lowered stays; only what is added is refused."""

    topics: int = 10_000
    topic_partitions: int = 10_000
    partitions: int = 100_000

    def check_new(self, there: Sequence[Topic], partitions: int) -> None:
        """Whether a topic of so many partitions may be added to those that are `there`. Raises `Invalid`."""
        if len(there) >= self.topics:
            raise Invalid(
                f"there are {len(there):,} topics, and topics.max is {self.topics:,}: delete some, or raise it",
                field="name",
            )
        self._check_partitions(there, partitions, partitions)

    def check_grown(self, there: Sequence[Topic], topic: Topic, partitions: int) -> None:
        """Whether `topic`, one of those that are `there`, may have so many partitions. Raises `Invalid`."""
        if partitions != topic.partition_count:
            self._check_partitions(there, partitions, partitions - topic.partition_count)

    def _check_partitions(self, there: Sequence[Topic], partitions: int, added: int) -> None:
        if not 1 <= partitions <= self.topic_partitions:
            raise Invalid(
                f"a topic has 1 to {self.topic_partitions:,} partitions (topic.partitions.max), not {partitions}",
                field="partitions",
            )
        total = sum(topic.partition_count for topic in there) + added
        if added > 0 and total > self.partitions:
            raise Invalid(
                f"all topics would have {total:,} partitions, and partitions.max is {self.partitions:,}: "
                "ask for fewer, delete topics, or raise it",
                field="partitions",
            )
