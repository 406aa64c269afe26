"""Opens a job as its program does, in the session of the tests."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence

from pyspark.sql import SparkSession

from tidelog.spark_connector.jobs.catalog import JOBS
from tidelog.spark_connector.jobs.job import Job


def opened(spark: SparkSession, name: str, arguments: Sequence[str]) -> Job:
    """One run of the job `name`. Raises `Invalid`."""
    kind = next(kind for kind in JOBS if kind.name == name)
    parser = ArgumentParser()
    kind.add_options(parser)
    return kind.open(spark, parser.parse_args(list(arguments)))
