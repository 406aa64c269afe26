"""Draws the report: for each row its figure relative to its goal. Right of the line is better than the goal."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

from benchmarks.measure import Report, Row
from benchmarks.table import measured

MET, MISSED = "#2a7f62", "#c0392b"
ROW_INCHES = 0.34


def save_picture(report: Report, path: Path) -> None:
    """Save a PNG with one bar per row. Rows that did not run are left out."""
    shown = [row for row in report.rows if row.measured is not None][::-1]
    figure, axes = plt.subplots(figsize=(11, 1.6 + ROW_INCHES * len(shown)), layout="constrained")
    margins = [margin(row) for row in shown]
    colours = [MET if row.met else MISSED for row in shown]
    bars = axes.barh([row.name for row in shown], margins, color=colours)
    labels = [f" {measured(row)}  (goal: {row.goal.text})" for row in shown]
    axes.bar_label(bars, labels, fontsize=7)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlim(min([0.2, *margins]) * 0.8, max([4.0, *margins]) * 8)
    axes.set_xlabel("measured / goal (log scale; for an upper limit: goal / measured)")
    axes.set_title(f"Tidelog against its goals, {report.machine.cores} cores", fontsize=10)
    axes.tick_params(labelsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def margin(row: Row) -> float:
    """The figure relative to the goal; above 1 the goal is met."""
    assert row.measured is not None
    ratio = row.measured / row.goal.limit
    return ratio if row.goal.at_least else 1 / max(ratio, 1e-9)
