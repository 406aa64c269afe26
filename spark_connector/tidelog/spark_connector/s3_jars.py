"""The jars of Hadoop's ``s3a``, fetched from Maven Central once per machine: four of them, 674 MB.

    python -m tidelog.spark_connector.s3_jars

``spark.jars.packages`` does as well, but copies them for every session. `local_session` takes those fetched here
where they are needed, on its class path, uncopied.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from tidelog.spark_connector.cache_folder import cache_folder
from tidelog.spark_connector.java_runtime import use_java
from tidelog.spark_connector.s3_access import HADOOP_AWS_PACKAGE
from tidelog.storage.errors import NotFound


def s3_jars(environ: Mapping[str, str] | None = None) -> list[Path]:
    """The fetched jars. Raises `NotFound` with the command that fetches them."""
    folder = _folder(os.environ if environ is None else environ)
    if not folder.is_dir():
        raise NotFound(
            f"the jars with which Spark reads s3:// are not in {folder}: fetch them (674 MB) with "
            "`python -m tidelog.spark_connector.s3_jars`"
        )
    return sorted(folder.glob("*.jar"))


def fetch_s3_jars(environ: Mapping[str, str] | None = None) -> list[Path]:
    """Fetch the jars if they are not here. Spark's own resolver does it, beside the place where they shall be; the
    folder appears whole or not at all."""
    environ = os.environ if environ is None else environ
    folder = _folder(environ)
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as draft:
            _resolve(Path(draft))
            (Path(draft) / "jars").rename(folder)
    return s3_jars(environ)


def _folder(environ: Mapping[str, str]) -> Path:
    return cache_folder(environ, "spark-jars") / HADOOP_AWS_PACKAGE.replace(":", "_")


def _resolve(ivy: Path) -> None:
    use_java()
    settings: dict[str, bool | float | int | str | None] = {
        "spark.jars.packages": HADOOP_AWS_PACKAGE,
        "spark.jars.ivy": str(ivy),
        "spark.ui.enabled": "false",
        "spark.local.dir": str(ivy / "local"),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    SparkSession.builder.master("local[1]").config(map=settings).getOrCreate().stop()
    shutil.rmtree(ivy / "cache")


if __name__ == "__main__":
    sys.stdout.write("".join(f"{jar}\n" for jar in fetch_s3_jars()))
