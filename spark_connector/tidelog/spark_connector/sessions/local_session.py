"""A local Spark session for demos, tests and benchmarks: small, quiet, with the data source registered."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pyspark.sql import SparkSession

from tidelog.spark_connector.sessions.java_runtime import JavaRuntime, use_java
from tidelog.spark_connector.sessions.jvm_start import start_session
from tidelog.spark_connector.sessions.s3_access import s3_options
from tidelog.spark_connector.sessions.s3_jars import s3_jars
from tidelog.spark_connector.source import register


def local_session(
    name: str,
    *,
    cores: int = 2,
    driver_memory: str = "1g",
    s3: bool = False,
    settings: Mapping[str, str] | None = None,
    java: JavaRuntime | None = None,
) -> SparkSession:
    """A session on `cores` threads of a JVM of this process, without the web interface. With `s3` it can read ``s3://``
    stores by the AWS variables. `java` is the result of `use_java`; without it, `use_java` is called here.

    Raises `JavaNotFound`, `JvmExited` if that Java does not start, and `NotFound` if the jars for S3 are missing.
    """
    java = java or use_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    defaults = {
        "spark.master": f"local[{cores}]",
        "spark.app.name": name,
        "spark.driver.memory": driver_memory,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(cores),
    }
    if s3:
        defaults |= {"spark.driver.extraClassPath": ":".join(str(jar) for jar in s3_jars()), **s3_options()}
    session = start_session(java, {**defaults, **(settings or {})})
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    return session
