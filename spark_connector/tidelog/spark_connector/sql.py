"""SQL over a topic from the shell, on a local Spark:

    tidelog spark sql --broker http://127.0.0.1:8080 --topic web \\
        "SELECT partition, count(*) FROM records GROUP BY 1 ORDER BY 1"

The view `records` has Kafka's columns and is one snapshot of the topic: cold segments and hot tail together. The rows
of each statement are printed as a table, or with `--json` as one JSON document for all statements.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyspark
from pyspark.errors import PySparkException

from tidelog.spark_connector.options.option_text import DEFAULT_BROKER
from tidelog.spark_connector.queries.native_read import read
from tidelog.spark_connector.sessions.java_runtime import use_java
from tidelog.spark_connector.sessions.local_session import local_session
from tidelog.storage.errors import TidelogError
from tidelog.storage.runtime import Runtime

EXIT_REFUSED = 1


@dataclass(frozen=True)
class StatementResult:
    """The rows as lists of cells, and the time that Spark took."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    seconds: float


@dataclass(frozen=True)
class SqlReport:
    """All statements of one run, and the versions that ran them. `start_seconds` is the time until Spark was up."""

    spark: str
    java: str
    start_seconds: float
    results: Sequence[StatementResult]


def run_statements(broker: str, topic: str, statements: Sequence[str], runtime: Runtime) -> SqlReport:
    """Run each statement over one snapshot of `topic`. Raises `NotFound`, `Unavailable`, `JavaNotFound`,
    `JvmExited`."""
    began = runtime.clock.monotonic()
    java = use_java()
    spark = local_session("tidelog sql", java=java)
    try:
        started = runtime.clock.monotonic()
        read(spark, broker=broker, subscribe=topic).createOrReplaceTempView("records")
        results = []
        for statement in statements:
            asked = runtime.clock.monotonic()
            frame = spark.sql(statement)
            rows = [list(row) for row in frame.collect()]
            results.append(StatementResult(frame.columns, rows, runtime.clock.monotonic() - asked))
        return SqlReport(pyspark.__version__, java.describe(), started - began, results)
    finally:
        spark.stop()


def main() -> int:
    """The program. It exits with code 1 and the reason on stderr if the broker, the topic or Java is missing, or if
    Spark refuses a statement."""
    parser = argparse.ArgumentParser(prog="tidelog spark sql", description="SQL over a topic")
    parser.add_argument("--broker", default=DEFAULT_BROKER)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--json", action="store_true", help="one JSON document instead of tables")
    parser.add_argument("statement", nargs="+", help="SQL over the view `records`")
    options = parser.parse_args()
    try:
        report = run_statements(options.broker, options.topic, options.statement, Runtime())
    except (TidelogError, PySparkException) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_REFUSED
    sys.stdout.write(json.dumps(asdict(report), default=str) + "\n" if options.json else _as_text(report))
    return 0


def _as_text(report: SqlReport) -> str:
    lines = [f"Spark {report.spark} on {report.java}"]
    for result in report.results:
        lines += ["", "\t".join(result.columns)]
        lines += ["\t".join(str(cell) for cell in row) for row in result.rows]
        lines.append(f"({len(result.rows)} rows, {result.seconds:.2f} s)")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
