"""Hadoop's ``s3a`` jars, with which Spark's readers open ``s3://``; fetched with Spark's resolver."""

from __future__ import annotations

import sys
from pathlib import Path

from infra.component import Component, cache_folder, run_showing_progress

PACKAGE = "org.apache.hadoop:hadoop-aws:3.5.0"


def folder() -> Path:
    """The folder of the jars, which `tidelog.spark_connector.sessions.s3_jars` fills and uses."""
    return cache_folder() / "spark-jars" / PACKAGE.replace(":", "_")


def find() -> Path | None:
    """The folder, None if it is missing. One rename creates it, so it is complete."""
    return folder() if folder().is_dir() else None


def make() -> None:
    """Fetch them: four jars, 674 MB."""
    run_showing_progress("spark-s3", [sys.executable, "-m", "tidelog.spark_connector.sessions.s3_jars"], {})


SPARK_S3 = Component(
    name="spark-s3",
    purpose="tests of Spark on S3",
    how="fetch it from Maven Central with `python infra/components.py prepare spark-s3` (674 MB)",
    find=find,
    make=make,
    seconds=120,
    megabytes=674,
)
