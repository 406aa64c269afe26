"""How far a partition was known to reach at a given time, from acknowledgements with acks=all and from reads."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable
from itertools import chain

from tests.chaos.checker.final_log import FinalLogs, TopicPartition
from tests.chaos.checker.history import EndQuery, History, Outcome, Read

Proofs = list[tuple[float, int]]
"""Times, and the known end from each time on."""


class KnownEnds:
    """The known ends of every partition of a history."""

    def __init__(self, logs: FinalLogs, history: History) -> None:
        proofs: dict[TopicPartition, Proofs] = defaultdict(list)
        for batch in logs.batches:
            for attempt in batch.acknowledged():
                for placed in attempt.placed:
                    end = placed.base_offset + placed.count
                    proofs[batch.topic, placed.partition].append((attempt.end, end))
        seen_ends: Iterable[Read | EndQuery] = chain(history.reads, history.ends)
        for seen in seen_ends:
            if end := _proved(seen):
                proofs[seen.topic, seen.partition].append((seen.end, end))
        self._proofs = {place: _rising(of_place) for place, of_place in proofs.items()}

    def before(self, place: TopicPartition, time: float) -> int:
        """The greatest end that was known before `time`."""
        times, ends = self._proofs.get(place, ([], []))
        at = bisect.bisect_left(times, time)
        return ends[at - 1] if at else 0


def _proved(seen: Read | EndQuery) -> int:
    if isinstance(seen, EndQuery):
        return seen.offset or 0
    if not seen.runs or seen.outcome is not Outcome.OK:
        return 0
    return seen.runs[-1].offset + seen.runs[-1].count


def _rising(proofs: Proofs) -> tuple[list[float], list[int]]:
    times: list[float] = []
    ends: list[int] = []
    for time, end in sorted(proofs):
        if not ends or end > ends[-1]:
            times.append(time)
            ends.append(end)
    return times, ends
