"""The report as people read it: a table on the terminal, and the page `docs/evidence/bench.md` from the same values."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Machine, Origin, Report, Row, Side

MARKS = {"met": "[green]met[/]", "missed": "[red]missed[/]", "not run": "[yellow]not run[/]"}


def print_rows(console: Console, report: Report) -> None:
    """What, goal, measured, both sides, met or not."""
    table = Table(title="Tidelog benchmarks", title_justify="left")
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
        "# All benchmark rows",
        "",
        "Written by `python -m benchmarks` (`make bench`) from its own JSON; do not edit by hand.",
        "The picture is `bench.png`, the figures are `bench.json`. The rows that matter most, and why, are in",
        "[benchmarks](../benchmarks.md).",
        "",
        f"- Machine: {machine.cores} cores, {machine.memory_gib:.0f} GiB, {machine.system}",
        f"- Software: Python {machine.python}, {machine.java}, {machine.versions}",
        "",
        "Each row names the commit, the day, the rounds, the processor, the disk and the load average it was measured",
        "with, and every setting of a server that is not its default. Sides run in turn (A B A B); rows show medians,",
        "with the lowest and the highest beside. Load programs and brokers share the same cores, on loopback, on one",
        "disk. MB are 1e6 bytes of record values. Both sides get the same records. Tidelog syncs every commit to the",
        "disk before it answers; Kafka, as it comes, answers from the page cache. A broker is paused while another is",
        "measured.",
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
        if row.origin:
            yield from ("", _measured_with(row.origin))


def _measured_with(origin: Origin) -> str:
    """One line under a row's table."""
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
