"""The rows of a steady state follow from its samples."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.loads.result import LoadResult
from benchmarks.measure import Row
from benchmarks.rows.steady_state import SETTLE_SECONDS_MAX, Debt, Steady, _own_rows

SECONDS = 600.0
LOAD = LoadResult(
    records=1, value_bytes=100_000_000_000, seconds=SECONDS, requests=1, refused=0, cpu_seconds=1.0, latency=None
)
DEBTS = [Debt(at_s, 2.0 if at_s % 60 < 30 else 4.0, at_s) for at_s in range(5, 600, 5)]
STEADY = Steady(LOAD, 10.0, DEBTS, end=Debt(600.0, 2.0, 460.0), rest=Debt(660.0, 0.0, 510.0), settled_s=60.0)


def rows_of(steady: Steady) -> dict[str, Row]:
    return {row.name: row for row in _own_rows(steady, SECONDS)}


def test_a_debt_that_rises_and_falls_with_each_pass_is_compared_by_its_mean() -> None:
    debt = rows_of(STEADY)["steady-state-debt"]
    assert [side.median for side in debt.sides] == pytest.approx([3.0, 3.0], rel=0.05)
    grown = [replace(debt, gb=debt.gb * 2) if debt.at_s > 300 else debt for debt in DEBTS]
    assert rows_of(replace(STEADY, debts=grown))["steady-state-debt"].measured == pytest.approx(2.0, rel=0.05)


def test_a_run_of_few_samples_has_a_debt_too() -> None:
    few = [Debt(5.0, 0.0, 1.0), Debt(300.0, 1.0, 2.0)]
    assert rows_of(replace(STEADY, debts=few))["steady-state-debt"].measured == 1.0


def test_cpu_is_counted_from_before_the_load_until_the_broker_is_at_rest() -> None:
    assert rows_of(STEADY)["steady-state-cpu"].measured == 5.0


def test_a_broker_that_is_not_at_rest_in_time_misses_the_goal() -> None:
    assert rows_of(STEADY)["steady-state-rest"].met
    late = rows_of(replace(STEADY, settled_s=None))["steady-state-rest"]
    assert (late.measured, late.met) == (SETTLE_SECONDS_MAX, False)
