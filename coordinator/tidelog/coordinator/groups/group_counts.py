"""Counters of the coordinators of groups, for metrics. Counting is addition on the event loop."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

WRITE_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


@dataclass
class GroupCounts:
    """Totals since the process started, of all coordinators of this broker. `requests`: by the name of the call.
    `events`: by the kind of a `GroupEvent`. `offsets`: committed. `write_buckets`: writes by duration, up to each of
    `WRITE_BUCKETS_S` and above."""

    requests: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    offsets: int = 0
    assignments: int = 0
    extensions: int = 0
    writes: int = 0
    writes_failed: int = 0
    changes: int = 0
    write_seconds: float = 0.0
    write_buckets: list[int] = field(default_factory=lambda: [0] * (len(WRITE_BUCKETS_S) + 1))

    def wrote(self, seconds: float, changes: int) -> None:
        """A write of so many changes succeeded."""
        self.writes += 1
        self.changes += changes
        self.write_seconds += seconds
        self.write_buckets[bisect_left(WRITE_BUCKETS_S, seconds)] += 1
