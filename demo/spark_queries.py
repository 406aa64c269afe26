"""The Spark queries of the demo, in a separate process: `tidelog spark sql`, a user's command.

The services do not import Spark. Without the extra `tidelog[spark]`, the demo says so and skips these queries.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import msgspec

from demo.source import Query
from tidelog.storage.errors import Unavailable

PROGRAM = "tidelog.spark_connector.sql"
TIMEOUT_SECONDS = 180
ERROR_CHARACTERS = 2000


@dataclass(frozen=True)
class QueryRun:
    """The result of one statement."""

    columns: Sequence[str]
    rows: Sequence[Sequence[int | str]]
    seconds: float


@dataclass(frozen=True)
class SparkRun:
    """The versions, and the results in the order of the queries. Spark was ready after `start_seconds`."""

    spark: str
    java: str
    start_seconds: float
    results: Sequence[QueryRun]


def spark_is_here() -> bool:
    return find_spec("pyspark") is not None


def run_queries(url: str, topic: str, queries: Sequence[Query]) -> SparkRun:
    """Raises `Unavailable` with the end of Spark's output if it fails."""
    command = [sys.executable, "-m", PROGRAM, "--broker", url, "--topic", topic, "--json"]
    try:
        done = subprocess.run(
            [*command, *(query.sql for query in queries)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"Spark gave no answer within {TIMEOUT_SECONDS} s") from error
    if done.returncode != 0:
        raise Unavailable(f"Spark failed with exit code {done.returncode}:\n{done.stderr[-ERROR_CHARACTERS:]}")
    return msgspec.json.decode(done.stdout.strip().splitlines()[-1], type=SparkRun)
