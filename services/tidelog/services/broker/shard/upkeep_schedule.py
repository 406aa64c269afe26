"""When the topics of a shard are due for upkeep."""

from __future__ import annotations

import heapq


class UpkeepSchedule:
    """A queue of due times in ms since 1970 UTC by topic id, and the topics whose due time is unknown. A topic takes
    some hundred bytes."""

    def __init__(self) -> None:
        self._due_at_ms: dict[str, int] = {}
        self._queue: list[tuple[int, str]] = []
        self._unknown: dict[str, None] = {}

    def __len__(self) -> int:
        """How many topics are unknown or have a due time."""
        return len(self._unknown) + len(self._due_at_ms)

    @property
    def queued(self) -> int:
        """Entries in the queue, outdated ones included."""
        return len(self._queue)

    def set(self, topic_id: str, due_at_ms: int | None) -> None:
        """`due_at_ms` None: not due before a version changes the topic."""
        self.forget(topic_id)
        if due_at_ms is not None:
            self._due_at_ms[topic_id] = due_at_ms
            heapq.heappush(self._queue, (due_at_ms, topic_id))
            self._compact()

    def set_unknown(self, topic_id: str) -> None:
        """Its due time is not known any more."""
        self._due_at_ms.pop(topic_id, None)
        self._unknown[topic_id] = None

    def forget(self, topic_id: str) -> None:
        self._due_at_ms.pop(topic_id, None)
        self._unknown.pop(topic_id, None)

    def unknown(self) -> str | None:
        """The topic that has been unknown for the longest time."""
        return next(iter(self._unknown), None)

    def first(self) -> tuple[int, str] | None:
        """The earliest due time and its topic."""
        while self._queue and self._due_at_ms.get(self._queue[0][1]) != self._queue[0][0]:
            heapq.heappop(self._queue)  # outdated
        return self._queue[0] if self._queue else None

    def _compact(self) -> None:
        """Drop outdated entries before they outnumber the others."""
        if len(self._queue) > 2 * len(self._due_at_ms) + 16:
            self._queue = [(due_at_ms, topic_id) for topic_id, due_at_ms in self._due_at_ms.items()]
            heapq.heapify(self._queue)
