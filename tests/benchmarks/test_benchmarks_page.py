"""The figures in docs/benchmarks.md are those recorded in docs/evidence/bench.json."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.measure import Report
from benchmarks.table import measured

DOCS = Path(__file__).parents[2] / "docs"
REPORT = Report.from_json((DOCS / "evidence/bench.json").read_text())
LINES = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (DOCS / "benchmarks.md").read_text().splitlines()
    if line.startswith("| ") and line.endswith("` |")
]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[-1])
def test_a_figure_of_the_page_is_the_recorded_one(line: list[str]) -> None:
    rows = {f"`{row.name}`": row for row in REPORT.rows}
    assert line[1] == measured(rows[line[-1]])


def test_the_page_has_the_rows_that_matter() -> None:
    assert len(LINES) >= 10


def test_every_recorded_row_says_where_it_came_from() -> None:
    assert all(row.origin for row in REPORT.rows)
