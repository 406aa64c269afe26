"""A partition's end as a register that only rises: appends move it; conflicts, empty reads and queries read it.

The check is for linearizability. The log gives the order in which the appends took effect, so no search is needed. Each
append took effect at one moment between its first attempt and the moment when somebody knew of it (its acknowledgement,
or a read that saw it). An answer that gives the end is called a look; it was true at one moment of its request. These
moments must rise in this order:

    looks with offset 0, first append, looks with its end, second append, ...

For each step the check takes the earliest moment that the earlier steps allow. That is the best choice for all later
steps, so if that moment is too late for one step, no order explains the answers. Herlihy & Wing, "Linearizability"
(1990); the known order makes the check linear in the length of the log.
"""

from __future__ import annotations

import bisect
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf

from tests.chaos.checker.final_log import Batch, FinalLogs, Piece, TopicPartition
from tests.chaos.checker.history import Append, EndQuery, History, Outcome, Read
from tests.chaos.checker.violation import Findings, Rule, Violation


@dataclass(frozen=True, slots=True)
class _Look:
    """A request from `start` to `end` whose answer gave the partition's end. `told` is for a report; `rule` is broken
    if the answer was never true during the request."""

    told: str
    start: float
    end: float
    rule: Rule


Looks = dict[int, list[_Look]]
"""The looks at a partition, by the end they gave."""


def check_register(logs: FinalLogs, history: History) -> Findings:
    """Check all rules of this module. Looks at a compacted topic are ignored: its log does not show every end."""
    looks = _looks(logs, history)
    for batch in logs.batches:
        for attempt in batch.attempts:
            yield from _expected(attempt)
    sightings: dict[TopicPartition, list[Read]] = defaultdict(list)
    for read in history.reads:
        if read.runs:
            sightings[read.topic, read.partition].append(read)
    for place in logs.logs:
        plain = not logs.rules(place[0]).compacted
        yield from _Register(logs, place, _Sightings(sightings[place])).check(looks[place] if plain else {})


def _looks(logs: FinalLogs, history: History) -> dict[TopicPartition, Looks]:
    looks: dict[TopicPartition, Looks] = defaultdict(lambda: defaultdict(list))
    for each in history.appends:
        if each.outcome is Outcome.CONFLICT and each.partition is not None:
            told = f"{each.client}:{each.first} was told that {each.topic}/{each.partition} goes on at "
            look = _Look(f"{told}{each.next_offset}", each.start, each.end, Rule.CONFLICT_ANSWER)
            looks[each.topic, each.partition][each.next_offset or 0].append(look)
    questions: Iterable[Read | EndQuery] = chain(history.reads, history.ends)
    for asked in questions:
        end = _end_told(asked)
        if end is not None:
            told = f"{asked.session} was told that {asked.topic}/{asked.partition} ends at {end}"
            looks[asked.topic, asked.partition][end].append(_Look(told, asked.start, asked.end, Rule.END_ANSWER))
    for place, start in logs.starts.items():  # below the log start the log does not show every end
        looks[place] = {offset: told for offset, told in looks[place].items() if offset >= start}
    return looks


def _end_told(asked: Read | EndQuery) -> int | None:
    """A read that returns no record says that the log ends at its offset."""
    if asked.outcome is not Outcome.OK:
        return None
    if isinstance(asked, EndQuery):
        return asked.offset
    return asked.offset if not asked.runs and asked.next_offset == asked.offset else None


def _expected(attempt: Append) -> Findings:
    if attempt.expected_offset is None:
        return
    told = (
        f"{attempt.client}:{attempt.first} to {attempt.topic}/{attempt.partition}, expecting {attempt.expected_offset}"
    )
    if attempt.outcome is Outcome.OK and attempt.placed and attempt.placed[0].base_offset != attempt.expected_offset:
        yield Violation(Rule.EXPECTED_OFFSET, f"{told}, was placed at {attempt.placed[0].base_offset}")
    if attempt.outcome is Outcome.CONFLICT and attempt.next_offset == attempt.expected_offset:
        yield Violation(Rule.CONFLICT_ANSWER, f"{told}, was refused though that is what it was told")


class _Sightings:
    """The times by which some reader had seen each offset."""

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
    """The earliest moment that the steps so far allow, and the step that determines it."""

    time: float = -inf
    because: str = "the beginning"

    def move(self, time: float, because: str) -> None:
        if time > self.time:
            self.time, self.because = time, because


@dataclass(frozen=True, slots=True)
class _Step:
    """An append in the order of the log. `over_by`: when it or a later one was known to be in the log. Every earlier
    step in this order must have begun by then."""

    batch: Batch
    base_offset: int
    known_at: float
    over_by: float


class _Register:
    """The walk along one partition."""

    def __init__(self, logs: FinalLogs, place: TopicPartition, sightings: _Sightings) -> None:
        self._place = place
        self._steps = _steps(logs, place, sightings)
        self._ends = {0, logs.starts[place], *(piece.base_offset + piece.count for piece in logs.pieces(place))}
        self._moment = _Moment()

    def check(self, looks: Looks) -> Findings:
        waiting = deque(sorted(looks.items()))
        for step in self._steps:
            while waiting and waiting[0][0] <= step.base_offset:
                yield from self._look(*waiting.popleft(), over_by=step.over_by)
            yield from self._append(step)
        for offset, at_offset in waiting:
            yield from self._look(offset, at_offset, over_by=inf)

    def _append(self, step: _Step) -> Findings:
        self._moment.move(step.batch.start, f"{step.batch} was not sent before {step.batch.start:.3f}")
        if self._moment.time > step.known_at:
            where = f"{self._place[0]}/{self._place[1]}@{step.base_offset}"
            late = f"{step.batch} at {where} was there by {step.known_at:.3f}"
            yield Violation(Rule.APPEND_ORDER, f"{late}, but should be behind this: {self._moment.because}")

    def _look(self, offset: int, looks: Sequence[_Look], *, over_by: float) -> Findings:
        before = self._moment.time
        latest = _Moment(before, self._moment.because)
        for look in looks:
            asked = f"{look.told}, asked at {look.start:.3f}"
            if offset not in self._ends:
                yield Violation(look.rule, f"{asked}: no append ever ended there")
            elif before > look.end:
                yield Violation(look.rule, f"{asked}, answered by {look.end:.3f}; later: {self._moment.because}")
            elif look.start > over_by:
                yield Violation(look.rule, f"{asked}: it had gone on by {over_by:.3f}")
            else:
                latest.move(look.start, asked)
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
