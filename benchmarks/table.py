"""Renders the report for people: a table on the terminal, and the page `docs/evidence/bench.md`."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Machine, Origin, Report, Row, Side

MARKS = {"met": "[green]met[/]", "missed": "[red]missed[/]", "not run": "[yellow]not run[/]"}


def print_rows(console: Console, report: Report) -> None:
    """Print a table: what, goal, measured, both sides, met or not."""
    table = Table(title="Tidelog benchmarks", title_justify="left")
    for name in ("what", "goal", "measured", "sides: median (lowest to highest)", ""):
        table.add_column(name)
    for row in report.rows:
        sides = "\n".join(f"{side.name} {figures(side)}" for side in row.sides) or row.note
        table.add_row(row.what, row.goal.text, measured(row), sides, MARKS[row.verdict])
    console.print(table)


def page(report: Report) -> str:
    """Render the whole report as Markdown."""
    return "\n".join([*_head(report.machine), *_summary(report), *_details(report)]) + "\n"


def measured(row: Row) -> str:
    """Format the figure that the goal limits, for the table."""
    if row.measured is None:
        return "-"
    unit = row.sides[0].unit if len(row.sides) == 1 else row.unit
    return f"{number(row.measured)} {unit}" if unit else f"{row.measured:.2f} x"


def figures(side: Side) -> str:
    """`median (low to high) unit`."""
    if len(side.samples) == 1:
        return f"{number(side.median)} {side.unit}"
    return f"{number(side.median)} ({number(side.low)} to {number(side.high)}) {side.unit}"


def number(value: float) -> str:
    """Format `value` with about three significant digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _head(machine: Machine) -> list[str]:
    lines = [
        "# All benchmark rows",
        "",
        "This page has every row of the benchmarks. [benchmarks.md](../benchmarks.md) explains the most important",
        "ones.",
        "`make bench` writes this page from `bench.json`; do not edit it by hand. `bench.png` shows the same figures.",
        "",
        f"- Machine: {machine.cores} cores, {machine.memory_gib:.0f} GiB, {machine.system}",
        f"- Software: Python {machine.python}, {machine.java}, {machine.versions}",
        "",
        "How to read a row:",
        "",
        "- `x` is Tidelog's figure divided by the other side's. In Spark rows it says how many times faster Tidelog",
        "  is. The goal is a lower limit for rates and for Spark; it is an upper limit for times, bytes and requests.",
        "- Sides run in turn (A B A B). A row shows medians, and the lowest and highest sample beside them.",
        "- MB are 1e6 bytes of record values. All sides get the same records.",
        "- Load programs and brokers share the cores, on loopback and one disk. A broker that is not measured is",
        "  paused.",
        "- Tidelog syncs every commit to the disk before it answers. Kafka, with its default settings, answers from",
        "  the page cache.",
        "- The last line of a row names its commit, day, rounds, processor, disk, load average, and all server",
        "  settings that are not defaults.",
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
        "| what | goal | measured | |",
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
        if row.origin:
            yield from ("", _measured_with(row.origin))


def _measured_with(origin: Origin) -> str:
    """The line under a row's table that says how it was measured."""
    parts = [
        f"Measured {origin.date} at commit {origin.commit}",
        f"{origin.rounds} rounds" if origin.rounds > 1 else "1 round",
        origin.cpu,
        origin.disk,
        f"load average {origin.load_before:.2f} before",
        *origin.settings,
        *([origin.note] if origin.note else []),
    ]
    return "; ".join(parts) + "."
