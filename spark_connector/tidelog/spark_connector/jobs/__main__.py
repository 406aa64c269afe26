"""The program of all jobs:

    python -m tidelog.spark_connector.jobs export --topic web --to /data/web --dry-run
    spark-submit --py-files tidelog.zip tidelog_jobs.py export --topic web --to s3a://lake/web

By itself it starts Spark on this machine. Started by ``spark-submit`` it uses that session, on its cluster. It prints
what was done as lines, or with `--json` as one JSON document; progress and errors go to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidelog.spark_connector.jobs.catalog import JOBS
from tidelog.spark_connector.jobs.job import Job, Outcome
from tidelog.spark_connector.jobs.job_metrics import write_metrics
from tidelog.spark_connector.jobs.job_progress import progress_shown
from tidelog.spark_connector.sessions.local_session import local_session
from tidelog.spark_connector.source import register
from tidelog.storage.errors import TidelogError
from tidelog.storage.runtime import Clock, Runtime

EXIT_REFUSED = 1
EXIT_DAMAGED = 6
EXIT_TERMINATED = 143
SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""spark-submit sets it for the Python program that it starts."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job. Exit code 1, with the reason on stderr, if an option is wrong or the job fails; 6 if the job found
    damage; 143 after SIGTERM, and then Spark's tasks are cancelled."""
    given = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _terminated)
    try:
        outcome = _run(given, Runtime().clock)
    except (TidelogError, PySparkException) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_REFUSED
    sys.stdout.write(_as_json(outcome) if given.json else _as_text(outcome))
    return 0 if outcome.sound else EXIT_DAMAGED


def _parser() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--dry-run", action="store_true", help="say what the job would do, and do nothing")
    shared.add_argument("--json", action="store_true", help="print one JSON document")
    shared.add_argument("--metrics", type=Path, metavar="FILE", help="write the figures in Prometheus' text format")
    shared.add_argument("--cores", type=int, default=2, help="of this machine; without spark-submit (default: 2)")
    shared.add_argument("--s3", action="store_true", help="read and write S3; without spark-submit")
    parser = argparse.ArgumentParser(prog="tidelog spark run", description="PySpark jobs over topics")
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    for kind in JOBS:
        kind.add_options(jobs.add_parser(kind.name, help=kind.summary, description=kind.summary, parents=[shared]))
    return parser


def _run(given: argparse.Namespace, clock: Clock) -> Outcome:
    kind = next(kind for kind in JOBS if kind.name == given.job)
    spark = _session(given)
    try:
        job = kind.open(spark, given)
        outcome = _outcome(spark, job, given, clock)
    finally:
        spark.stop()
    if given.metrics:
        write_metrics(given.metrics, kind.name, outcome.facts)
    return outcome


def _outcome(spark: SparkSession, job: Job, given: argparse.Namespace, clock: Clock) -> Outcome:
    began_s = clock.monotonic()
    planned = job.plan()
    if given.dry_run:
        return Outcome({"job": given.job, "dry_run": "nothing was done", **planned})
    with progress_shown(spark, given.job):
        done = job.run()
    seconds = round(clock.monotonic() - began_s, 3)
    return replace(done, facts={"job": given.job, **done.facts, "seconds": seconds})


def _session(given: argparse.Namespace) -> SparkSession:
    if SUBMITTED not in os.environ:
        return local_session(f"tidelog {given.job}", cores=given.cores, s3=given.s3)
    spark = SparkSession.builder.appName(f"tidelog {given.job}").getOrCreate()
    register(spark)
    return spark


def _as_json(outcome: Outcome) -> str:
    return json.dumps({**outcome.facts, "findings": outcome.findings, "sound": outcome.sound}) + "\n"


def _as_text(outcome: Outcome) -> str:
    width = max(len(name) for name in outcome.facts)
    facts = (f"{name:<{width}}  {_cell(value)}" for name, value in outcome.facts.items())
    return "".join(f"{line}\n" for line in (*outcome.findings, *facts))


def _cell(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:,}"


def _terminated(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(EXIT_TERMINATED)


if __name__ == "__main__":
    sys.exit(main())
