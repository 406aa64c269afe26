"""``backfill``: the rows of files as records of a topic, each once.

    tidelog spark run backfill --from /data/2024 --format parquet --key user --to events --checkpoint /data/backfill
    tidelog spark run backfill --from s3a://logs/ --format text --to lines --checkpoint s3a://logs-backfill/checkpoint

It runs as a stream over the files. If it ends in the middle, start it again with the same checkpoint: it goes on where
it was. Files that came since are read, too.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidelog.spark_connector.jobs.job import Facts, JobKind, Outcome
from tidelog.spark_connector.jobs.named_values import named_values
from tidelog.spark_connector.jobs.stream_to_topic import (
    TopicTarget,
    add_target_options,
    partitions_of_target,
    target_of,
    write_stream,
)
from tidelog.storage.errors import Invalid

FORMATS = ("parquet", "json", "csv", "orc", "text")
FILES_PER_BATCH = 1_000


@dataclass(frozen=True)
class Files:
    """The files to read, and SQL for the fields of a record by their names. `options` are those of Spark's reader."""

    path: str
    format: str
    options: dict[str, str]
    fields: dict[str, str]
    per_batch: int


class Backfill:
    """See `job.Job`."""

    def __init__(self, spark: SparkSession, files: Files, target: TopicTarget) -> None:
        self._spark = spark
        self._files = files
        self._target = target
        self._schema = StructType()

    def plan(self) -> Facts:
        partitions = partitions_of_target(self._target)
        files = self._files
        found = self._spark.read.format(files.format).options(**files.options).load(files.path)
        self._schema = found.schema
        self._records(found)  # Spark checks the expressions now
        return {
            "from": files.path,
            "files": len(found.inputFiles()),
            "columns": found.schema.simpleString(),
            **self._target.facts,
            "partitions": partitions,
        }

    def run(self) -> Outcome:
        files = self._files
        options = {**files.options, "maxFilesPerTrigger": str(files.per_batch)}
        rows = self._spark.readStream.format(files.format).schema(self._schema).options(**options).load(files.path)
        written = write_stream(self._spark, self._records(rows), self._target)
        return Outcome({"from": files.path, **self._target.facts, "records": written})

    def _records(self, rows: DataFrame) -> DataFrame:
        return rows.selectExpr(*(f"{text} AS {name}" for name, text in self._files.fields.items()))


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--from", dest="source", required=True, metavar="PATH", help="a folder, a file or a pattern")
    parser.add_argument("--format", default=FORMATS[0], choices=FORMATS, help="of the files (default: %(default)s)")
    parser.add_argument("--read-option", action="append", default=[], metavar="NAME=VALUE", help="of Spark's reader")
    parser.add_argument("--key", metavar="EXPRESSION", help="SQL over the columns; without it records have no key")
    parser.add_argument("--value", metavar="EXPRESSION", help="SQL; by default the whole row as JSON, of text the line")
    parser.add_argument("--headers", metavar="EXPRESSION", help="SQL: array<struct<key: string, value: binary>>")
    parser.add_argument(
        "--files-per-batch", type=int, default=FILES_PER_BATCH, help="in one micro-batch (default: %(default)s)"
    )
    add_target_options(parser, may_follow=False)


def _open(spark: SparkSession, given: Namespace) -> Backfill:
    if given.files_per_batch < 1:
        raise Invalid(f"--files-per-batch {given.files_per_batch}: give at least 1", field="files-per-batch")
    options = named_values("read-option", given.read_option)
    value = given.value or ("value" if given.format == "text" else "to_json(struct(*))")
    fields = {"key": given.key, "value": value, "headers": given.headers}
    chosen = {name: text for name, text in fields.items() if text}
    return Backfill(spark, Files(given.source, given.format, options, chosen, given.files_per_batch), target_of(given))


BACKFILL = JobKind("backfill", "write the rows of files into a topic, each once", _add_options, _open)
