"""The verdict on a history: every rule, and what was judged.

The judge knows nothing of the service: it imports nothing of it, and a history is all it reads. So it is wrong about
the service only where a client wrote down what did not happen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from tests.chaos.checker.final_log import FinalLogs
from tests.chaos.checker.history import History, Outcome
from tests.chaos.checker.ordering import check_ordering
from tests.chaos.checker.presence import check_presence
from tests.chaos.checker.reading import check_reading
from tests.chaos.checker.register import check_register
from tests.chaos.checker.violation import Rule, Violation

KEPT_OF_A_RULE_MAX = 20
"""Breaches of one rule that a verdict spells out; all are counted."""


@dataclass(frozen=True)
class Verdict:
    """`broken`: how often each rule was. `violations`: the first of each."""

    broken: Counter[Rule]
    violations: Sequence[Violation]
    appends: Counter[Outcome]
    reads: Counter[Outcome]
    values_in_log: int
    values_read: int

    @property
    def holds(self) -> bool:
        return not self.broken

    def __str__(self) -> str:
        if self.holds:
            return f"holds: {self.values_in_log} values in the log, {self.values_read} read, none amiss"
        counts = ", ".join(f"{rule.name} {count}" for rule, count in self.broken.most_common())
        return "\n".join([f"broken: {counts}", *map(str, self.violations)])


def judge(history: History) -> Verdict:
    """Go through all rules."""
    logs = FinalLogs(history)
    broken: Counter[Rule] = Counter()
    kept: list[Violation] = []
    for violation in chain(
        check_presence(logs),
        check_ordering(logs),
        check_reading(logs, history.reads),
        check_register(logs, history.reads),
    ):
        broken[violation.rule] += 1
        if broken[violation.rule] <= KEPT_OF_A_RULE_MAX:
            kept.append(violation)
    return Verdict(
        broken=broken,
        violations=kept,
        appends=Counter(append.outcome for append in history.appends),
        reads=Counter(read.outcome for read in history.reads),
        values_in_log=sum(len(log) for log in logs.logs.values()),
        values_read=sum(run.count for read in history.reads for run in read.runs),
    )
