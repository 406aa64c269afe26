"""Explains why Spark's JVM did not start.

pyspark reports ``JAVA_GATEWAY_EXITED`` and nothing else. The reason is what Java or Spark's start script wrote, partly
to stdout, where nobody looks for it. `explain_jvm_exit` runs the same command once more with ``--version``, reads both
streams, and quotes them.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from tidelog.spark_connector.java_runtime import JavaRuntime
from tidelog.storage.errors import Unavailable

GATEWAY_EXITED = "JAVA_GATEWAY_EXITED"
SECOND_START_TIMEOUT_S = 60
QUOTED_CHARACTERS_MAX = 2000


class JvmExited(Unavailable):
    """Spark's JVM ended before it could be used; the message quotes it."""


def explain_jvm_exit(java: JavaRuntime, settings: Mapping[str, str]) -> JvmExited:
    """The error to raise after pyspark's ``JAVA_GATEWAY_EXITED``. `settings`: those of the session."""
    return JvmExited(
        f"Spark's JVM did not start. {java.describe()}, said:\n{_words(settings)}\n"
        "Set JAVA_HOME to a Java 17 or newer that starts with this machine's memory and these settings; "
        "Spark's start scripts also need bash on PATH."
    )


def _words(settings: Mapping[str, str]) -> str:
    """The end of what ``spark-submit --version`` writes under the same settings."""
    conf = [argument for name, value in settings.items() for argument in ("--conf", f"{name}={value}")]
    command = [str(Path(_find_spark_home()) / "bin" / "spark-submit"), *conf, "--version"]
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECOND_START_TIMEOUT_S,
            check=False,
            env=os.environ,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if answer.returncode == 0:
        return "(a second start succeeded: try again)"
    return answer.stdout.strip()[-QUOTED_CHARACTERS_MAX:]
