"""When each of many things is due, where nearly all are put off before their time comes.

To put a key off costs O(1): the heap keeps the old, earlier time, and `expired` pushes the key back when that time
comes. So `due_ms` may be too early, never too late.
"""

from __future__ import annotations

import heapq

DROPPED_MAX = 1_000
"""Entries of dropped keys that may stay in the heap, besides as many as there are keys."""


class Deadlines:
    """Times in ms on the monotonic clock, by key."""

    def __init__(self) -> None:
        self._at_ms: dict[str, int] = {}
        self._queued_ms: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def set(self, key: str, at_ms: int) -> None:
        """`key` is due at `at_ms`, whatever was said before."""
        self._at_ms[key] = at_ms
        if at_ms < self._queued_ms.get(key, at_ms + 1):
            self._queue(key, at_ms)

    def drop(self, key: str) -> None:
        """`key` is never due. It need not be known."""
        self._at_ms.pop(key, None)
        if len(self._heap) > 2 * len(self._at_ms) + DROPPED_MAX:
            self._rebuild()

    def expired(self, now_ms: int) -> list[str]:
        """Remove and return the keys that are due, in the order of their times."""
        keys = []
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, key = heapq.heappop(self._heap)
            if self._queued_ms.get(key) != at_ms:
                continue  # the key was queued again for an earlier time
            del self._queued_ms[key]
            due_ms = self._at_ms.get(key)
            if due_ms is None:
                continue
            if due_ms > now_ms:
                self._queue(key, due_ms)
                continue
            del self._at_ms[key]
            keys.append(key)
        return keys

    @property
    def due_ms(self) -> int | None:
        """When to call `expired`; None: nothing is due ever."""
        return self._heap[0][0] if self._at_ms else None

    def __contains__(self, key: str) -> bool:
        return key in self._at_ms

    def __len__(self) -> int:
        return len(self._at_ms)

    def _rebuild(self) -> None:
        """Forget the entries of keys that were dropped, so that members that come and go take no memory."""
        self._queued_ms = dict(self._at_ms)
        self._heap = [(at_ms, key) for key, at_ms in self._at_ms.items()]
        heapq.heapify(self._heap)

    def _queue(self, key: str, at_ms: int) -> None:
        self._queued_ms[key] = at_ms
        heapq.heappush(self._heap, (at_ms, key))
