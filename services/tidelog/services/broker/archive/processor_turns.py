"""Divides the processors among threads that work in the background: archiving before upkeep, producers before both.

While producers are active, patient work of all kinds together uses one processor fewer than there are, but at least
one. The scheduler alone does not protect them: two busy threads of low priority on two processors double the p99 of
produce, whatever their priority is, because a request that wakes up finds no idle processor (ADR 0033). While producers
are quiet, patient work uses all processors. Work that is hurried does not take turns.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum

RECHECK_S = 0.5
"""A waiting thread looks this often whether producers have become quiet."""


class Work(IntEnum):
    """Kinds of background work. Of two that wait for a turn, the lower one goes first."""

    ARCHIVE = 0
    UPKEEP = 1


class ProcessorTurns:
    """The turns of one process with so many `processors`. `producers_active` is called by any thread."""

    def __init__(self, processors: int, producers_active: Callable[[], bool]) -> None:
        self.processors = processors
        self._producers_active = producers_active
        self._changed = threading.Condition()
        self._waiting: Counter[Work] = Counter()
        self._running = 0

    @contextmanager
    def turn(self, work: Work) -> Iterator[None]:
        """A block that uses a processor. Begins once there is one for `work`."""
        with self._changed:
            self._waiting[work] += 1
            while not self._may_begin(work):
                self._changed.wait(RECHECK_S)
            self._waiting[work] -= 1
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    @property
    def at_once(self) -> int:
        """How many blocks may run at once now."""
        return max(1, self.processors - 1) if self._producers_active() else self.processors

    def _may_begin(self, work: Work) -> bool:
        goes_before = any(self._waiting[other] for other in Work if other < work)
        return self._running < self.at_once and not goes_before
