"""Rules on reads: all sessions see the same records, and each session goes forward without a gap."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.chaos.checker.final_log import HOLE, FinalLogs, TopicPartition
from tests.chaos.checker.history import History, Outcome, Read, Run
from tests.chaos.checker.known_ends import KnownEnds
from tests.chaos.checker.violation import Findings, Rule, Violation


def check_reading(logs: FinalLogs, history: History) -> Findings:
    """Check all rules of this module. The final read counts as a reader: if two sessions disagree, at least one
    disagrees with it."""
    sessions: dict[tuple[str, TopicPartition], list[Read]] = defaultdict(list)
    for read in history.reads:
        sessions[read.session, (read.topic, read.partition)].append(read)
    known = KnownEnds(logs, history)
    agreement = _Agreement(logs)
    for (_, place), reads in sessions.items():
        yield from _Session(logs, place, known).check(reads)
        for read in reads:
            yield from agreement.check(place, read)


class _Session:
    """The steps of one reader of one partition. After `out_of_range` for a deleted offset it may begin anywhere."""

    def __init__(self, logs: FinalLogs, place: TopicPartition, known: KnownEnds) -> None:
        self._log = logs.log(place)
        self._start = logs.starts.get(place, 0)
        self._compacted = logs.rules(place[0]).compacted
        self._expires = logs.rules(place[0]).expires
        self._known = known
        self._place = place
        self._due: int | None = None

    def check(self, reads: list[Read]) -> Findings:
        reads.sort(key=lambda read: read.start)
        for read in reads:
            if read.outcome is Outcome.OUT_OF_RANGE:
                yield from self._refused(read)
            if read.outcome is Outcome.OK:
                yield from self._step(read)

    def _refused(self, read: Read) -> Findings:
        expired = self._expires and read.offset < read.log_start_offset  # also after the final read
        if read.offset < self._start or expired:
            self._due = None
        elif read.offset <= max(self._due or 0, self._known.before(self._place, read.start)):
            yield Violation(Rule.CUT_OFF, f"{_told(read)}: offset {read.offset} was refused")

    def _step(self, read: Read) -> Findings:
        position = read.offset
        if self._due is not None:
            yield from self._moved(read, self._due, position)
        for run in read.runs:
            yield from self._moved(read, position, run.offset)
            position = run.offset + run.count
        yield from self._moved(read, position, read.next_offset)
        self._due = read.next_offset

    def _moved(self, read: Read, due: int, offset: int) -> Findings:
        if offset < due:
            yield Violation(Rule.WENT_BACK, f"{_told(read)}: {due} was due, and {offset} came")
        if offset > due and not self._compacted_away(due, offset):
            yield Violation(Rule.SKIPPED, f"{_told(read)}: {due} was due, and {offset} came")

    def _compacted_away(self, due: int, offset: int) -> bool:
        return self._compacted and all(value == HOLE for value in self._log[due:offset])


class _Agreement:
    """Compares the records that readers saw with the final log, and deleted records with what other readers saw."""

    def __init__(self, logs: FinalLogs) -> None:
        self._logs = logs
        self._deleted: dict[tuple[TopicPartition, int], int] = {}

    def check(self, place: TopicPartition, read: Read) -> Findings:
        for run in read.runs:
            for offset, saw, held in self._differences(place, run):
                told = f"{_told(read)} saw {self._logs.name(saw)} at {offset}"
                yield Violation(Rule.DISAGREEMENT, f"{told}, where {self._logs.name(held)} is at the end")
                break

    def _differences(self, place: TopicPartition, run: Run) -> Iterator[tuple[int, int, int]]:
        log = self._logs.log(place)
        seen = self._logs.values_of(run)
        if seen == log[run.offset : run.offset + run.count]:
            return
        for n, saw in enumerate(seen):
            offset = run.offset + n
            held = log[offset] if offset < len(log) else HOLE
            if held == HOLE and self._may_be_deleted(place, offset):
                held = self._deleted.setdefault((place, offset), saw)
            if saw != held:
                yield offset, saw, held

    def _may_be_deleted(self, place: TopicPartition, offset: int) -> bool:
        compacted = self._logs.rules(place[0]).compacted and offset < len(self._logs.log(place))
        return compacted or offset < self._logs.starts.get(place, 0)


def _told(read: Read) -> str:
    return f"{read.session} on {read.topic}/{read.partition} at {read.start:.3f}"
