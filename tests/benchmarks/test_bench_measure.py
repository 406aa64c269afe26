"""Rows, goals and reports as values."""

import pytest
from benchmarks.measure import Goal, Report, interleave
from tests.benchmarks.bench_rows import MACHINE, sample_report, sample_rows


def test_a_row_compares_medians() -> None:
    fast = sample_rows()[0]
    assert fast.measured == pytest.approx(10 / 3)


@pytest.mark.parametrize(
    ("goal", "measured", "met"),
    [
        (Goal("", 2.0), 2.0, True),
        (Goal("", 2.0), 1.99, False),
        (Goal("", 2.0, at_least=False), 2.0, True),
        (Goal("", 2.0, at_least=False), 2.01, False),
    ],
)
def test_a_goal_is_a_floor_or_a_ceiling(goal: Goal, measured: float, met: bool) -> None:
    assert goal.met(measured) is met


def test_a_row_that_did_not_run_is_neither_met_nor_missed() -> None:
    absent = sample_rows()[3]
    assert absent.met is None
    assert absent.verdict == "not run"


def test_a_report_survives_json() -> None:
    report = sample_report()
    again = Report.from_json(report.to_json())
    assert again.to_json() == report.to_json()
    assert [row.verdict for row in again.rows] == ["met", "missed", "met", "not run"]


def test_a_report_keeps_where_each_row_came_from() -> None:
    again = Report.from_json(sample_report().to_json())
    assert again.rows[0].origin is not None
    assert (again.rows[0].origin.commit, again.rows[0].origin.rounds) == ("abc1234", 3)
    assert again.rows[1].origin is None


def test_new_rows_take_the_place_of_old_ones() -> None:
    newer = sample_rows()[1]
    report = Report(MACHINE, tuple(sample_rows()[:2])).with_rows([newer, sample_rows()[2]])
    assert [row.name for row in report.rows] == ["fast", "large", "memory"]
    assert report.rows[1] is newer


def test_sides_run_in_turn() -> None:
    calls: list[str] = []

    def run(name: str) -> int:
        calls.append(name)
        return len(calls)

    found = interleave(2, {"a": lambda: run("a"), "b": lambda: run("b")})
    assert calls == ["a", "b", "a", "b"]
    assert found == {"a": [1, 3], "b": [2, 4]}
