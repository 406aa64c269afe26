"""`tidelog spark`: starts the programs of `tidelog.spark_connector`, which have options of their own."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import Any

import typer

from tidelog.storage.errors import NotFound

PASSED_ON: dict[str, Any] = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
"""All arguments, `--help` too, go to the program."""
_PROGRAMS = "tidelog.spark_connector"


def run(context: typer.Context) -> None:
    """Run a job on Spark: backfill, compact, export, repartition, transform or verify.

    [dim]tidelog spark run export --topic web --to /data/web --dry-run[/dim]
    """
    _become("jobs", context.args)


def sql(context: typer.Context) -> None:
    """Query a topic by SQL, as the view `records`.

    [dim]tidelog spark sql --topic web "SELECT count(*) FROM records"[/dim]
    """
    _become("sql", context.args)


def package(context: typer.Context) -> None:
    """Write the zip and the program for `spark-submit`.

    [dim]tidelog spark package tidelog.zip[/dim]
    """
    _become("package", context.args)


def _become(program: str, arguments: list[str]) -> None:
    """Replace this process, so that signals and the exit code are the program's. Raises `NotFound` without pyspark."""
    if find_spec("pyspark") is None:
        raise NotFound("pyspark is not installed: pip install 'tidelog[spark]'")
    os.execv(sys.executable, [sys.executable, "-m", f"{_PROGRAMS}.{program}", *arguments])  # noqa: S606 - no shell
