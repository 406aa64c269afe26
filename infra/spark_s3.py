"""Hadoop's ``s3a`` jars, with which Spark's own readers open ``s3://``: fetched by Spark's resolver."""

from __future__ import annotations

import sys
from pathlib import Path

from infra.component import Component, cache_folder, run_showing_progress

PACKAGE = "org.apache.hadoop:hadoop-aws:3.5.0"


def folder() -> Path:
    """Where the jars are kept; `tidelog.spark_connector.s3_jars` puts them there and takes them from there."""
    return cache_folder() / "spark-jars" / PACKAGE.replace(":", "_")


def find() -> Path | None:
    """The folder, if it is there; it appears whole."""
    return folder() if folder().is_dir() else None


def make() -> None:
    """Fetch them: four jars, 674 MB."""
    run_showing_progress("spark-s3", [sys.executable, "-m", "tidelog.spark_connector.s3_jars"], {})


SPARK_S3 = Component(
    name="spark-s3",
    purpose="tests of Spark on S3",
    how="let it be fetched from Maven Central with `python infra/components.py prepare spark-s3` (674 MB)",
    find=find,
    make=make,
    seconds=120,
    megabytes=674,
)
