"""Rules on failures: only a fault excuses them.

A fault excuses operations that overlap the time from its beginning to `AFTERMATH_S` after its end. The harness records
the end of a fault when every partition takes appends again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tests.chaos.checker.final_log import Batch, FinalLogs
from tests.chaos.checker.history import (
    Acks,
    Append,
    EndQuery,
    FaultWindow,
    GroupCommit,
    Heartbeat,
    History,
    Outcome,
    Read,
    Trim,
)
from tests.chaos.checker.violation import Findings, Rule, Violation

AFTERMATH_S = 3.0
ACKS_1_LOSS_S = 3.0
"""The longest time before a fault at which an acks=1 record that the fault loses may have been acknowledged; also the
longest time between the first and the last of the records that one fault loses. Brokers promise `acks1.loss.max.ms`,
0.8 s here. One fault may crash two leaders of a shard one after the other."""

FAILURES = (Outcome.FAIL, Outcome.UNKNOWN)


class Weather:
    """The faults of a history."""

    def __init__(self, faults: Iterable[FaultWindow]) -> None:
        self._faults: Sequence[FaultWindow] = sorted(faults, key=lambda fault: fault.start)

    @property
    def windows(self) -> Sequence[FaultWindow]:
        """The faults, in order."""
        return self._faults

    def excuses(self, start: float, end: float, *, ahead_s: float = 0.0) -> bool:
        """Whether a fault overlaps the time from `start` to `end`, or begins within `ahead_s` after it."""
        return any(fault.start - ahead_s <= end and start <= fault.end + AFTERMATH_S for fault in self._faults)


def check_calm(history: History) -> Findings:
    """Every failure is excused by a fault."""
    weather = Weather(history.faults)
    operations: Iterator[Append | Read | EndQuery | Trim] = (
        operation for kind in (history.appends, history.reads, history.ends, history.trims) for operation in kind
    )
    for each in operations:
        if each.outcome in FAILURES and not weather.excuses(each.start, each.end):
            who = each.client if isinstance(each, Append | Trim) else each.session
            told = f"{who} on {each.topic}/{each.partition} at {each.start:.3f}"
            yield Violation(Rule.UNEXCUSED, f"{told} failed ({each.code or each.outcome.value}) in calm weather")
    calls: Sequence[Heartbeat | GroupCommit] = (*history.heartbeats, *history.group_commits)
    for call in calls:
        if call.outcome in FAILURES and call.code and not weather.excuses(call.start, call.end):
            told = f"{call.member} of {call.group} at {call.start:.3f}"
            yield Violation(Rule.UNEXCUSED, f"{told} failed ({call.code}) in calm weather")


def check_acks_1(logs: FinalLogs, history: History) -> Findings:
    """Records acknowledged with acks=1 may be lost, but only by a fault, and only if they are at most `ACKS_1_LOSS_S`
    old."""
    weather = Weather(history.faults)
    lost_at: list[float] = []
    for batch, lost in lost_of_acks_1(logs):
        for attempt in _acknowledged_by_leader(batch):
            lost_at.append(attempt.end)
            if not weather.excuses(attempt.end, attempt.end, ahead_s=ACKS_1_LOSS_S):
                told = f"{lost} values of {batch}, acknowledged at {attempt.end:.3f}"
                yield Violation(Rule.ACKS_1_LOSS, f"{told}, are not in the log, and no fault was near")
    for fault in weather.windows:
        by_fault = [at for at in lost_at if fault.start - ACKS_1_LOSS_S <= at <= fault.end]
        if by_fault and max(by_fault) - min(by_fault) > ACKS_1_LOSS_S:
            told = f"{fault.kind} at {fault.start:.3f} lost records acknowledged from {min(by_fault):.3f}"
            yield Violation(Rule.ACKS_1_LOSS, f"{told} to {max(by_fault):.3f}")


def lost_of_acks_1(logs: FinalLogs) -> Iterator[tuple[Batch, int]]:
    """Each batch that was acknowledged with acks=1 and is missing in the log, with the number of missing values."""
    there = logs.values_there()
    for batch in logs.batches:
        if any(_acknowledged_by_leader(batch)):
            first = logs.value(batch.client, batch.first)
            lost = sum(value not in there for value in range(first, first + batch.count))
            if lost:
                yield batch, lost


def _acknowledged_by_leader(batch: Batch) -> Iterator[Append]:
    return (a for a in batch.attempts if a.outcome is Outcome.OK and a.acks is Acks.LEADER)
