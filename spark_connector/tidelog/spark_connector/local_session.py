"""A Spark on this machine alone, for demos, tests and benchmarks: small, quiet, with the data source registered."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pyspark.sql import SparkSession

from tidelog.spark_connector.java_runtime import use_java
from tidelog.spark_connector.s3_access import s3_options
from tidelog.spark_connector.s3_jars import s3_jars
from tidelog.spark_connector.source import register


def local_session(
    name: str,
    *,
    cores: int = 2,
    driver_memory: str = "1g",
    s3: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session on `cores` threads of this process's own JVM, without the web interface; with `s3` it can read
    ``s3://`` stores under the AWS variables. Raises `JavaNotFound`, and `NotFound` where the jars for S3 are missing.
    """
    use_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    defaults = {
        "spark.driver.memory": driver_memory,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(cores),
    }
    if s3:
        defaults |= {"spark.driver.extraClassPath": ":".join(str(jar) for jar in s3_jars()), **s3_options()}
    builder = SparkSession.builder.master(f"local[{cores}]").appName(name)
    session = builder.config(map={**defaults, **(settings or {})}).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    return session
