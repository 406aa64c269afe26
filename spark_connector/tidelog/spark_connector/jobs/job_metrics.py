"""Writes the figures of a job as a file in Prometheus' text format, for the textfile collector of node_exporter."""

from __future__ import annotations

from pathlib import Path

from tidelog.spark_connector.jobs.job import Facts


def write_metrics(target: Path, job: str, report: Facts) -> None:
    """One gauge for each number of `report`. The file appears whole, so a scrape never sees a part of it."""
    lines = []
    for name, value in report.items():
        if isinstance(value, int | float):
            metric = f"tidelog_spark_job_{name}"
            lines += [f"# TYPE {metric} gauge", f'{metric}{{job="{job}"}} {value}']
    beside = target.with_name(f"{target.name}.new")
    beside.write_text("".join(f"{line}\n" for line in lines))
    beside.replace(target)
