"""The judge on hand-made histories: every rule has at least one history that breaks this rule and no other."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from tests.chaos.bad_histories import BAD
from tests.chaos.checker.history_lines import format_history, parse_history
from tests.chaos.checker.judge import KEPT_OF_A_RULE_MAX, judge
from tests.chaos.checker.violation import Rule
from tests.chaos.good_histories import GOOD
from tests.chaos.histories import held, sent, story

CHECKER = Path(__file__).parent / "checker"


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_passes(name: str) -> None:
    verdict = judge(GOOD[name])
    assert verdict.holds, verdict


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_fails_for_its_rule_and_no_other(name: str) -> None:
    rule, history = BAD[name]
    verdict = judge(history)
    assert set(verdict.broken) == {rule}, verdict


def test_every_rule_has_a_history_that_breaks_it() -> None:
    assert {rule for rule, _ in BAD.values()} == set(Rule)


def test_losses_of_acks_1_are_reported_although_no_rule_forbids_them() -> None:
    verdict = judge(GOOD["acks=1 loses what a fault finds, and nobody minds"])
    assert verdict.lost_of_acks_1 == 3
    assert "3 of acks=1 lost by faults" in str(verdict)


@pytest.mark.parametrize("line", ['{"op": "raed"}', '{"topic": "t"}', '{"op": "read", "session": "r"}'])
def test_a_line_that_is_not_understood_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="line"):
        parse_history([line])


@pytest.mark.parametrize("name", [*GOOD, *BAD])
def test_a_history_survives_its_text(name: str) -> None:
    history = GOOD[name] if name in GOOD else BAD[name][1]
    assert parse_history(format_history(history)) == history


def test_a_verdict_counts_all_violations_and_lists_the_first() -> None:
    verdict = judge(story(*(sent("p", n, at=n, base=n) for n in range(100)), held()))
    assert verdict.broken[Rule.LOST] == 100
    assert len(verdict.violations) == KEPT_OF_A_RULE_MAX
    assert "p:0" in str(verdict)


def test_a_history_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="two batches"):
        judge(story(sent("p", 0, 2, at=0), sent("p", 1, 2, at=0)))
    with pytest.raises(ValueError, match="differ"):
        judge(story(sent("p", 0, 2, at=0), sent("p", 0, 3, at=0)))
    with pytest.raises(ValueError, match="two final reads"):
        judge(story(held(), held()))


def test_the_judge_imports_nothing_but_itself_and_the_standard_library() -> None:
    for file in CHECKER.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                assert name.startswith("tests.chaos.checker") or name.split(".")[0] in sys.stdlib_module_names, name
