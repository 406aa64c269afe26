"""Starts Spark's JVM, and explains why it did not start.

pyspark reports ``JAVA_GATEWAY_EXITED`` and nothing else. The reason is what Java, Spark's start script or its resolver
wrote, partly to stdout, where nobody looks for it. So after such a failure the same command runs once more, with both
streams read, and the error quotes them.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from tidelog.spark_connector.java_runtime import JavaRuntime
from tidelog.storage.errors import Unavailable

GATEWAY_EXITED = "JAVA_GATEWAY_EXITED"
SECOND_START_TIMEOUT_S = 120
QUOTED_CHARACTERS_MAX = 2000


class JvmExited(Unavailable):
    """Spark's JVM ended before it could be used; the message quotes it."""


def start_session(java: JavaRuntime, settings: Mapping[str, str]) -> SparkSession:
    """A session under `settings`, on the Java that `use_java` found. Raises `JvmExited`."""
    try:
        return SparkSession.builder.config(map=dict(settings)).getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != GATEWAY_EXITED:
            raise
        raise JvmExited(
            f"Spark's JVM ended at its start. {java.describe()}:\n{_words(settings)}\n"
            "If Java itself does not start, set JAVA_HOME to a Java 17 or newer that does. "
            "Spark's start scripts also need bash on PATH."
        ) from error


def _words(settings: Mapping[str, str]) -> str:
    """The end of what pyspark's own command writes, stack traces left out."""
    conf = [argument for name, value in settings.items() for argument in ("--conf", f"{name}={value}")]
    command = [str(Path(_find_spark_home()) / "bin" / "spark-submit"), *conf, "pyspark-shell"]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(Path(folder) / "gateway")}
        try:
            answer = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,  # at whose end a JVM that did start ends
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=SECOND_START_TIMEOUT_S,
                check=False,
                env=environment,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    if answer.returncode == 0:
        return "(a second start succeeded: try again)"
    lines = [line for line in answer.stdout.splitlines() if not line.startswith("\tat ")]
    return "\n".join(lines).strip()[-QUOTED_CHARACTERS_MAX:]
