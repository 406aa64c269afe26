"""The report as people read it: a table on the terminal, and the page `docs/benchmarks.md` from the same values."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Machine, Report, Row, Side

MARKS = {"met": "[green]met[/]", "missed": "[red]missed[/]", "not run": "[yellow]not run[/]"}


def print_rows(console: Console, report: Report) -> None:
    """What, goal, measured, both sides, met or not."""
    table = Table(title=f"Tidelog benchmarks, {report.machine.date}", title_justify="left")
    for name in ("what", "goal", "measured", "sides: median (lowest to highest)", ""):
        table.add_column(name)
    for row in report.rows:
        sides = "\n".join(f"{side.name} {figures(side)}" for side in row.sides) or row.note
        table.add_row(row.what, row.goal.text, measured(row), sides, MARKS[row.verdict])
    console.print(table)


def page(report: Report) -> str:
    """Markdown of the whole report."""
    return "\n".join([*_head(report.machine), *_summary(report), *_details(report)]) + "\n"


def measured(row: Row) -> str:
    """The figure that the goal limits, as it stands in the table."""
    if row.measured is None:
        return "-"
    return f"{number(row.measured)} {row.sides[0].unit}" if len(row.sides) == 1 else f"{row.measured:.2f} x"


def figures(side: Side) -> str:
    """`median (low to high) unit`."""
    if len(side.samples) == 1:
        return f"{number(side.median)} {side.unit}"
    return f"{number(side.median)} ({number(side.low)} to {number(side.high)}) {side.unit}"


def number(value: float) -> str:
    """Three or so digits that matter."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _head(machine: Machine) -> list[str]:
    lines = [
        "# Benchmarks",
        "",
        "Written by `python -m benchmarks` (`make bench`) from its own JSON; do not edit by hand.",
        "The picture is `evidence/bench.png`, the figures are `evidence/bench.json`.",
        "",
        f"- Machine: {machine.cpu}, {machine.cores} cores, {machine.memory_gib:.0f} GiB, {machine.system}",
        f"- Software: Python {machine.python}, {machine.java}, {machine.versions}; commit {machine.commit}",
        f"- Run: {machine.date}, {machine.rounds} rounds, sides in turn (A B A B); medians, lowest and highest beside",
        f"- Load average before the run: {machine.load_before:.2f}{'; ' if machine.note else ''}{machine.note}",
        "",
        "Broker and load program share the same cores, on loopback, on one disk. MB are 1e6 bytes of record values.",
        "Both sides get the same records. Tidelog's brokers keep their default settings unless a row says otherwise:",
        "every commit is synced to the disk before it is answered; Kafka, as it comes, answers from the page cache.",
    ]
    if machine.quick:
        lines += ["", "**A quick run: too short to judge by.**"]
    return lines


def _summary(report: Report) -> Iterator[str]:
    met = sum(row.met is True for row in report.rows)
    yield from (
        "",
        f"## Goals: {met} of {len(report.rows)} met",
        "",
        "| what | at least | measured | |",
        "|---|---|---|---|",
    )
    for row in report.rows:
        yield f"| {row.what} | {row.goal.text} | {measured(row)} | {row.verdict} |"


def _details(report: Report) -> Iterator[str]:
    yield from ("", "## Figures")
    for row in report.rows:
        yield from ("", f"### {row.name}: {row.what}", "")
        if row.sides:
            yield from ("| side | median | lowest to highest | its client | also |", "|---|---|---|---|---|")
        for side in row.sides:
            spread = f"{number(side.low)} to {number(side.high)}"
            also = "; ".join(side.facts)
            yield f"| {side.name} | {number(side.median)} {side.unit} | {spread} | {side.client} | {also} |"
        if row.note:
            yield from ("", row.note)
