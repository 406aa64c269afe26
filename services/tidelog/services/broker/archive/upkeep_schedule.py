"""When each partition of a shard next wants upkeep: a queue by time, and the partitions of which that is not known.

A partition costs an entry of some hundred bytes here and nothing else, so that a broker keeps thousands of them whose
manifests it does not hold.
"""

from __future__ import annotations

import heapq

from tidelog.storage.layout import TopicPartition


class UpkeepSchedule:
    """Times in ms since 1970 UTC. A partition is unknown, known to be due at a time, or known never to be."""

    def __init__(self) -> None:
        self._due_at_ms: dict[TopicPartition, int] = {}
        self._queue: list[tuple[int, TopicPartition]] = []
        self._unknown: dict[TopicPartition, None] = {}

    def __len__(self) -> int:
        """How many are unknown or due at some time."""
        return len(self._unknown) + len(self._due_at_ms)

    @property
    def queued(self) -> int:
        """Entries in the queue, those that were set to another time since included."""
        return len(self._queue)

    def set(self, topic_partition: TopicPartition, due_at_ms: int | None) -> None:
        """From what its newest manifest says. None: not before another version."""
        self.forget(topic_partition)
        if due_at_ms is not None:
            self._due_at_ms[topic_partition] = due_at_ms
            heapq.heappush(self._queue, (due_at_ms, topic_partition))
            self._compact()

    def look_at(self, topic_partition: TopicPartition) -> None:
        """Nothing is known of it any more."""
        self._due_at_ms.pop(topic_partition, None)
        self._unknown[topic_partition] = None

    def forget(self, topic_partition: TopicPartition) -> None:
        self._due_at_ms.pop(topic_partition, None)
        self._unknown.pop(topic_partition, None)

    def unknown(self) -> TopicPartition | None:
        """The one that has been unknown for longest."""
        return next(iter(self._unknown), None)

    def first(self) -> tuple[int, TopicPartition] | None:
        """The one that is due first, and when."""
        while self._queue and self._due_at_ms.get(self._queue[0][1]) != self._queue[0][0]:
            heapq.heappop(self._queue)  # it was set to another time since
        return self._queue[0] if self._queue else None

    def _compact(self) -> None:
        """Drop what was set to another time since, before it outgrows what is there."""
        if len(self._queue) > 2 * len(self._due_at_ms) + 16:
            self._queue = [(due_at_ms, place) for place, due_at_ms in self._due_at_ms.items()]
            heapq.heapify(self._queue)
