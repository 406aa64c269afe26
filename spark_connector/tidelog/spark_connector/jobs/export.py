"""``export``: the records of topics as partitioned files, for programs that know nothing of Tidelog.

    tidelog spark run export --topic web --to /data/web --partition-by date
    tidelog spark run export --topic web --to s3a://lake/web --format delta --mode append

The export is one snapshot: each record once, in the columns of Kafka's source. A later run goes on where this one
ended, if it gets this one's `ending_offsets` as ``--option startingOffsets=…`` and ``--mode append``.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from tidelog.spark_connector.jobs.job import Facts, JobKind, Outcome
from tidelog.spark_connector.jobs.topic_ranges import TopicRanges, add_read_options, ranges_now, read_options
from tidelog.spark_connector.queries.native_read import read
from tidelog.storage.errors import Invalid

FORMATS = ("parquet", "orc", "json", "iceberg", "delta")
MODES = ("error", "append", "overwrite")
DATE = "date"
FOLDERS = ("topic", "partition", DATE)


@dataclass(frozen=True)
class Target:
    """Where the files go, and how they are laid out. `files`: at most this many in each folder, and None: as Spark cuts
    its tasks."""

    path: str
    format: str
    mode: str
    folders: tuple[str, ...]
    files: int | None


class Export:
    """See `job.Job`."""

    def __init__(self, spark: SparkSession, options: dict[str, str], target: Target) -> None:
        self._spark = spark
        self._options = options
        self._target = target
        self._ranges: TopicRanges | None = None

    def plan(self) -> Facts:
        self._ranges = ranges_now(self._options)
        target = self._target
        return {**self._ranges.facts, "to": target.path, "format": target.format, "mode": target.mode}

    def run(self) -> Outcome:
        assert self._ranges is not None, "run follows plan"
        if self._ranges.offsets:
            self._write(read(self._spark, **self._ranges.options))
        return Outcome({**self._ranges.facts, "to": self._target.path})

    def _write(self, records: DataFrame) -> None:
        target = self._target
        if DATE in target.folders:
            records = records.withColumn(DATE, F.to_date(F.to_utc_timestamp("timestamp", F.current_timezone())))
        if target.files:
            records = records.repartition(target.files, *target.folders)
        writer = records.write.format(target.format).mode(target.mode)
        (writer.partitionBy(*target.folders) if target.folders else writer).save(target.path)


def _add_options(parser: ArgumentParser) -> None:
    add_read_options(parser)
    parser.add_argument(
        "--to", required=True, metavar="PATH", help="the folder to write, as /data/web or s3a://lake/web"
    )
    parser.add_argument(
        "--format", default=FORMATS[0], choices=FORMATS, help="iceberg and delta need their jars (default: %(default)s)"
    )
    parser.add_argument(
        "--mode", default=MODES[0], choices=MODES, help="what to do if the folder exists (default: %(default)s)"
    )
    parser.add_argument("--partition-by", default="", metavar="COLUMNS", help=f"folders: {', '.join(FOLDERS)}")
    parser.add_argument("--files", type=int, metavar="COUNT", help="tasks that write, and so files in a folder at most")


def _open(spark: SparkSession, given: Namespace) -> Export:
    folders = tuple(name.strip() for name in given.partition_by.split(",") if name.strip())
    if unknown := set(folders) - set(FOLDERS):
        named = ", ".join(sorted(unknown))
        raise Invalid(f"--partition-by {named}: choose from {', '.join(FOLDERS)}", field="partition-by")
    if given.files is not None and given.files < 1:
        raise Invalid(f"--files {given.files}: give at least 1", field="files")
    return Export(spark, read_options(given), Target(given.to, given.format, given.mode, folders, given.files))


EXPORT = JobKind("export", "write the records of topics as partitioned files", _add_options, _open)
