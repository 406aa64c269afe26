"""A partition's next offset as a register that only rises: appends move it, conflicts read it (linearizability).

The log says in which order the appends took effect, so no search is needed. Each append must have had its effect at
one moment between its first attempt and the moment when somebody knew of it (its acknowledgement, or a read that saw
it), each conflict its look at one moment of its request, and these moments must rise in the order

    conflicts that told offset 0, first append, conflicts that told its end, second append, ...

Taking for each the earliest moment that is left is best for all that follow; if that is too late for one, there is no
order at all that explains what clients were told. Herlihy & Wing, "Linearizability" (1990); the order of a log makes
the check linear in its length, as for any register whose writes are unique and totally ordered.
"""

from __future__ import annotations

import bisect
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from tests.chaos.checker.final_log import Batch, FinalLogs, Piece, TopicPartition
from tests.chaos.checker.history import Append, Outcome, Read
from tests.chaos.checker.violation import Findings, Rule, Violation

Conflicts = dict[int, list[Append]]
"""Conflicts of a partition by the next offset they told."""


def check_register(logs: FinalLogs, reads: Iterable[Read]) -> Findings:
    """All rules of this module."""
    conflicts: dict[TopicPartition, Conflicts] = defaultdict(lambda: defaultdict(list))
    for batch in logs.batches:
        for attempt in batch.attempts:
            yield from _expected(attempt)
            if attempt.outcome is Outcome.CONFLICT and attempt.partition is not None:
                conflicts[batch.topic, attempt.partition][attempt.next_offset or 0].append(attempt)
    sightings: dict[TopicPartition, list[Read]] = defaultdict(list)
    for read in reads:
        if read.runs:
            sightings[read.topic, read.partition].append(read)
    for place in logs.logs:
        yield from _Register(logs, place, _Sightings(sightings[place])).check(conflicts[place])


def _expected(attempt: Append) -> Findings:
    if attempt.expected_offset is None:
        return
    told = (
        f"{attempt.client}:{attempt.first} to {attempt.topic}/{attempt.partition}, expecting {attempt.expected_offset}"
    )
    if attempt.outcome is Outcome.OK and attempt.placed[0].base_offset != attempt.expected_offset:
        yield Violation(Rule.EXPECTED_OFFSET, f"{told}, was placed at {attempt.placed[0].base_offset}")
    if attempt.outcome is Outcome.CONFLICT and attempt.next_offset == attempt.expected_offset:
        yield Violation(Rule.CONFLICT_ANSWER, f"{told}, was refused though that is what it was told")


class _Sightings:
    """By when an offset had been seen by some reader."""

    def __init__(self, reads: Sequence[Read]) -> None:
        by_end = sorted((read.runs[-1].offset + read.runs[-1].count, read.end) for read in reads)
        self._ends = [end for end, _ in by_end]
        self._earliest = [at for _, at in by_end]
        for n in range(len(by_end) - 2, -1, -1):
            self._earliest[n] = min(self._earliest[n], self._earliest[n + 1])

    def of(self, offset: int) -> float:
        """The end of the first read that reached beyond `offset`; infinity if there was none."""
        at = bisect.bisect_right(self._ends, offset)
        return self._earliest[at] if at < len(self._earliest) else inf


@dataclass
class _Moment:
    """The earliest moment that the steps so far allow, and the step that it rests on."""

    time: float = -inf
    because: str = "the beginning"

    def move(self, time: float, because: str) -> None:
        if time > self.time:
            self.time, self.because = time, because


@dataclass(frozen=True, slots=True)
class _Step:
    """An append in the order of the log. `over_by`: by when it, or one behind it, was known to be there; whatever comes
    before it in this order must have begun by then."""

    batch: Batch
    base_offset: int
    known_at: float
    over_by: float


class _Register:
    """The walk along one partition."""

    def __init__(self, logs: FinalLogs, place: TopicPartition, sightings: _Sightings) -> None:
        self._place = place
        self._steps = _steps(logs, place, sightings)
        self._ends = {0, *(piece.base_offset + piece.count for piece in logs.pieces(place))}
        self._moment = _Moment()

    def check(self, conflicts: Conflicts) -> Findings:
        looks = deque(sorted(conflicts.items()))
        for step in self._steps:
            while looks and looks[0][0] <= step.base_offset:
                yield from self._look(*looks.popleft(), over_by=step.over_by)
            yield from self._append(step)
        for next_offset, told in looks:
            yield from self._look(next_offset, told, over_by=inf)

    def _append(self, step: _Step) -> Findings:
        self._moment.move(step.batch.start, f"{step.batch} was not sent before {step.batch.start:.3f}")
        if self._moment.time > step.known_at:
            where = f"{self._place[0]}/{self._place[1]}@{step.base_offset}"
            late = f"{step.batch} at {where} was there by {step.known_at:.3f}"
            yield Violation(Rule.APPEND_ORDER, f"{late}, but should be behind this: {self._moment.because}")

    def _look(self, next_offset: int, conflicts: Sequence[Append], *, over_by: float) -> Findings:
        before = self._moment.time
        latest = _Moment(before, self._moment.because)
        for conflict in conflicts:
            if next_offset not in self._ends:
                yield Violation(Rule.CONFLICT_ANSWER, f"{_told(conflict)}: no append ever ended there")
            elif before > conflict.end:
                late = f"{_told(conflict)} by {conflict.end:.3f}"
                yield Violation(Rule.CONFLICT_ANSWER, f"{late}, which came later: {self._moment.because}")
            elif conflict.start > over_by:
                late = f"{_told(conflict)}, asked at {conflict.start:.3f}"
                yield Violation(Rule.CONFLICT_ANSWER, f"{late}: it had gone on by {over_by:.3f}")
            else:
                latest.move(conflict.start, f"{_told(conflict)}, asked at {conflict.start:.3f}")
        self._moment = latest


def _steps(logs: FinalLogs, place: TopicPartition, sightings: _Sightings) -> list[_Step]:
    """Each batch once, at its first place."""
    first: dict[int, Piece] = {}
    for piece in logs.pieces(place):
        if piece.batch is not None:
            first.setdefault(piece.batch, piece)
    steps: list[_Step] = []
    over_by = inf
    for index, piece in reversed(first.items()):
        batch = logs.batches[index]
        known_at = min((attempt.end for attempt in batch.acknowledged()), default=inf)
        known_at = min(known_at, sightings.of(piece.base_offset))
        over_by = min(over_by, known_at)
        steps.append(_Step(batch, piece.base_offset, known_at, over_by))
    return steps[::-1]


def _told(conflict: Append) -> str:
    return (
        f"{conflict.client}:{conflict.first} was told that {conflict.topic}/{conflict.partition} "
        f"goes on at {conflict.next_offset}"
    )
