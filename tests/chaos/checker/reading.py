"""Rules on what readers saw: all of them the same, each of them forwards and without a hole."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable

from tests.chaos.checker.final_log import FinalLogs
from tests.chaos.checker.history import Outcome, Read
from tests.chaos.checker.violation import Findings, Rule, Violation


def check_reading(logs: FinalLogs, reads: Iterable[Read]) -> Findings:
    """All rules of this module. The final read is a reader too: two that disagree cannot both agree with it."""
    sessions: dict[tuple[str, str, int], list[Read]] = defaultdict(list)
    for read in reads:
        sessions[read.session, read.topic, read.partition].append(read)
    for session in sessions.values():
        yield from _one_session(session)
        for read in session:
            yield from _agrees(logs, read)


def _one_session(reads: list[Read]) -> Findings:
    reads.sort(key=lambda read: read.start)
    due: int | None = None
    for read in reads:
        if read.outcome is Outcome.OUT_OF_RANGE and due is not None and read.offset <= due:
            yield Violation(Rule.CUT_OFF, f"{_told(read)}: offset {read.offset} was refused")
        if read.outcome is not Outcome.OK:
            continue
        position = read.offset if due is None else due
        yield from _moved(read, position, read.offset)
        position = read.offset
        for run in read.runs:
            yield from _moved(read, position, run.offset)
            position = run.offset + run.count
        yield from _moved(read, position, read.next_offset)
        due = read.next_offset


def _moved(read: Read, due: int, offset: int) -> Findings:
    if offset < due:
        yield Violation(Rule.WENT_BACK, f"{_told(read)}: {due} was due, and {offset} came")
    if offset > due:
        yield Violation(Rule.SKIPPED, f"{_told(read)}: {due} was due, and {offset} came")


def _agrees(logs: FinalLogs, read: Read) -> Findings:
    log = logs.logs.get((read.topic, read.partition), array("q"))
    for run in read.runs:
        seen = logs.values_of(run)
        final = log[run.offset : run.offset + run.count]
        if seen != final:
            at = next((n for n, value in enumerate(final) if value != seen[n]), len(final))
            held = logs.name(final[at]) if at < len(final) else "nothing"
            told = f"{_told(read)} saw {logs.name(seen[at])} at {run.offset + at}, where {held} is at the end"
            yield Violation(Rule.DISAGREEMENT, told)


def _told(read: Read) -> str:
    return f"{read.session} on {read.topic}/{read.partition} at {read.start:.3f}"
