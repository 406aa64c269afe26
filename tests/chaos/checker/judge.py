"""The verdict on a history: it checks every rule and counts what it judged.

The judge imports nothing of the service and reads only the history. So it can be wrong about the service only where a
client recorded something that did not happen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from tests.chaos.checker.calm import check_acks_1, check_calm, lost_of_acks_1
from tests.chaos.checker.deletions import check_deletions
from tests.chaos.checker.final_log import FinalLogs
from tests.chaos.checker.groups import check_groups
from tests.chaos.checker.history import History, Outcome
from tests.chaos.checker.ordering import check_ordering
from tests.chaos.checker.presence import check_presence
from tests.chaos.checker.reading import check_reading
from tests.chaos.checker.register import check_register
from tests.chaos.checker.violation import Findings, Rule, Violation

KEPT_OF_A_RULE_MAX = 20
"""The number of violations of one rule that a verdict lists; all are counted."""


@dataclass(frozen=True)
class Verdict:
    """`broken`: how often each rule was broken. `violations`: the first of each rule. `lost_of_acks_1`: values that
    acks=1 acknowledged and a fault lost, which no rule forbids."""

    broken: Counter[Rule]
    violations: Sequence[Violation]
    appends: Counter[Outcome]
    reads: Counter[Outcome]
    values_in_log: int
    values_read: int
    lost_of_acks_1: int

    @property
    def holds(self) -> bool:
        return not self.broken

    def __str__(self) -> str:
        if self.holds:
            lost = f"; {self.lost_of_acks_1} of acks=1 lost by faults" if self.lost_of_acks_1 else ""
            return f"holds: {self.values_in_log} values in the log, {self.values_read} read, no rule broken{lost}"
        counts = ", ".join(f"{rule.name} {count}" for rule, count in self.broken.most_common())
        return "\n".join([f"broken: {counts}", *map(str, self.violations)])


def judge(history: History) -> Verdict:
    """Check all rules."""
    logs = FinalLogs(history)
    broken: Counter[Rule] = Counter()
    kept: list[Violation] = []
    for violation in chain(
        _check_recorded(logs, history),
        check_calm(history),
        check_presence(logs),
        check_acks_1(logs, history),
        check_deletions(logs, history),
        check_ordering(logs),
        check_reading(logs, history),
        check_register(logs, history),
        check_groups(history),
    ):
        broken[violation.rule] += 1
        if broken[violation.rule] <= KEPT_OF_A_RULE_MAX:
            kept.append(violation)
    return Verdict(
        broken=broken,
        violations=kept,
        appends=Counter(append.outcome for append in history.appends),
        reads=Counter(read.outcome for read in history.reads),
        values_in_log=sum(run.count for final in history.finals for run in final.runs),
        values_read=sum(run.count for read in history.reads for run in read.runs),
        lost_of_acks_1=sum(lost for _, lost in lost_of_acks_1(logs)),
    )


def _check_recorded(logs: FinalLogs, history: History) -> Findings:
    """An empty history proves nothing."""
    if not history.appends:
        yield Violation(Rule.NOTHING_RECORDED, "no append was recorded")
    if not history.finals:
        yield Violation(Rule.NOTHING_RECORDED, "no partition was read at the end")
    for topic in sorted({append.topic for append in history.appends} - {final.topic for final in history.finals}):
        if history.finals:
            yield Violation(Rule.NOTHING_RECORDED, f"{topic} was appended to and not read at the end")
