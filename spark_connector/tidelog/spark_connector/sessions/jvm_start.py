"""Starts Spark's JVM, and quotes its output if it does not start.

pyspark reports only ``JAVA_GATEWAY_EXITED``. Java, Spark's start script or its package resolver wrote the reason,
partly to stdout. So after such a failure the same command runs once more with both streams captured, and the error
quotes them.
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

from tidelog.spark_connector.sessions.java_runtime import JavaRuntime
from tidelog.storage.errors import Unavailable

GATEWAY_EXITED = "JAVA_GATEWAY_EXITED"
SECOND_START_TIMEOUT_S = 120
QUOTED_CHARACTERS_MAX = 2000


class JvmExited(Unavailable):
    """Spark's JVM ended before it could be used. The message quotes its output."""


def start_session(java: JavaRuntime, settings: Mapping[str, str]) -> SparkSession:
    """A session with `settings`, on the Java that `use_java` found. Raises `JvmExited`."""
    try:
        return SparkSession.builder.config(map=dict(settings)).getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != GATEWAY_EXITED:
            raise
        raise JvmExited(
            f"Spark's JVM ended at its start. {java.describe()}:\n{_output_of_second_start(settings)}\n"
            "If Java itself does not start, set JAVA_HOME to a Java 17 or newer that does. "
            "Spark's start scripts also need bash on PATH."
        ) from error


def _output_of_second_start(settings: Mapping[str, str]) -> str:
    """The end of the output of pyspark's own command, without stack traces."""
    conf = [argument for name, value in settings.items() for argument in ("--conf", f"{name}={value}")]
    command = [str(Path(_find_spark_home()) / "bin" / "spark-submit"), *conf, "pyspark-shell"]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(Path(folder) / "gateway")}
        try:
            answer = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,  # a JVM that does start ends when its stdin ends
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
