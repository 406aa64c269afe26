"""Which group is due next, among thousands, at the cost of a heap operation now and then.

A group has one entry: the earliest time that it was scheduled for. If its due time moves to later, as at each
heartbeat, the entry stays; the group is then popped too early, once, and scheduled anew.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator


class DueGroups:
    """Times are in ms."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._entries: dict[str, int] = {}

    @property
    def next_ms(self) -> int | None:
        """The time of the earliest entry."""
        return self._heap[0][0] if self._heap else None

    def schedule(self, group: str, due_ms: int | None) -> None:
        """`group` is due at `due_ms`; None: never."""
        if due_ms is not None and (group not in self._entries or due_ms < self._entries[group]):
            self._entries[group] = due_ms
            heapq.heappush(self._heap, (due_ms, group))

    def pop_until(self, now_ms: int) -> Iterator[str]:
        """The groups whose entry is at `now_ms` or before. Schedule each of them anew."""
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, group = heapq.heappop(self._heap)
            if self._entries.get(group) == due_ms:
                del self._entries[group]
                yield group
