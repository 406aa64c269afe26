"""``transform``: SQL from topics to a topic, as a stream: each result once.

    tidelog spark run transform --source web=web-events --schema 'web=path string, ms long, at timestamp' \\
        --watermark 'web=at,10 minutes' --to counts --checkpoint /data/counts --follow --sql \\
        'SELECT path AS key, to_json(struct(window, path, count(*) AS n)) AS value
         FROM web GROUP BY window(at, "1 minute"), path'

Each source is a view of a topic with the record's columns. With a schema, the members of its JSON values are columns,
too, in the place of record's columns of the same names; a value that does not fit has nulls. The result's columns are
those that a write takes (`value`, and `key`, `headers`, `partition`). Without a column `value`, the whole row is the
value, as JSON.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import StructType

from tidelog.spark_connector.jobs.job import Facts, JobKind, Outcome
from tidelog.spark_connector.jobs.named_values import named_values
from tidelog.spark_connector.jobs.stream_to_topic import (
    TopicTarget,
    add_target_options,
    partitions_of_target,
    target_of,
    topic_stream,
    write_stream,
)
from tidelog.storage.errors import Invalid

OUTPUT_MODES = ("append", "update")


@dataclass(frozen=True)
class Source:
    """The view `name` of a topic. `schema`: of its JSON values (None: not parsed); `watermark`: a column, and how late
    its times may be."""

    name: str
    topic: str
    schema: str | None
    watermark: tuple[str, str] | None


class Transform:
    """See `job.Job`."""

    def __init__(
        self, spark: SparkSession, sources: list[Source], sql: str, target: TopicTarget, output_mode: str
    ) -> None:
        self._spark = spark
        self._sources = sources
        self._sql = sql
        self._target = target
        self._output_mode = output_mode

    def plan(self) -> Facts:
        partitions = partitions_of_target(self._target)
        return {
            **{f"source_{source.name}": source.topic for source in self._sources},
            "result": self._result().schema.simpleString(),
            **self._target.facts,
            "partitions": partitions,
        }

    def run(self) -> Outcome:
        read = write_stream(self._spark, self._result(), self._target, self._output_mode)
        return Outcome({**self._target.facts, "records_read": read})

    def _result(self) -> DataFrame:
        """Spark checks the statement here."""
        for source in self._sources:
            self._view(source).createOrReplaceTempView(source.name)
        result = self._spark.sql(self._sql)
        if "value" in result.columns:
            return result
        return result.select(F.to_json(F.struct(*result.columns)).alias("value"))

    def _view(self, source: Source) -> DataFrame:
        records = topic_stream(self._spark, self._target.broker, source.topic)
        if source.schema:
            members = _members(source)
            parsed = F.from_json(F.col("value").cast("string"), members).alias("parsed")
            kept = [name for name in records.columns if name not in members.names]
            records = records.select(*kept, parsed).select(*kept, "parsed.*")
        return records.withWatermark(*source.watermark) if source.watermark else records


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--source", action="append", required=True, metavar="VIEW=TOPIC", help="may be given several times, for joins"
    )
    parser.add_argument(
        "--schema",
        action="append",
        default=[],
        metavar="VIEW=COLUMNS",
        help="of JSON values, as 'id long, url string'",
    )
    parser.add_argument(
        "--watermark", action="append", default=[], metavar="VIEW=COLUMN,DELAY", help="as 'web=at,10 minutes'"
    )
    parser.add_argument("--sql", required=True, metavar="SQL", help="a statement over the views, or @FILE")
    parser.add_argument(
        "--output-mode", default=OUTPUT_MODES[0], choices=OUTPUT_MODES, help="of aggregations (default: %(default)s)"
    )
    add_target_options(parser, may_follow=True)


def _open(spark: SparkSession, given: Namespace) -> Transform:
    topics = named_values("source", given.source)
    schemas, watermarks = named_values("schema", given.schema), named_values("watermark", given.watermark)
    for option, named in (("schema", schemas), ("watermark", watermarks)):
        if unknown := sorted(named.keys() - topics.keys()):
            raise Invalid(f"--{option} names {unknown[0]}, which is no --source", field=option)
    if given.to in topics.values():
        raise Invalid(f"--to {given.to} is a source, too: it would never end", field="to")
    sources = [Source(name, topic, schemas.get(name), _watermark(name, watermarks)) for name, topic in topics.items()]
    return Transform(spark, sources, _statement(given.sql), target_of(given), given.output_mode)


def _members(source: Source) -> StructType:
    """Raises `Invalid`."""
    members = StructType.fromDDL(source.schema or "")
    if not isinstance(members, StructType):
        raise Invalid(f"--schema {source.name}={source.schema}: name columns and types", field="schema")
    return members


def _watermark(name: str, given: Mapping[str, str]) -> tuple[str, str] | None:
    if name not in given:
        return None
    column, comma, delay = given[name].partition(",")
    if not comma or not column.strip() or not delay.strip():
        raise Invalid(f"--watermark {name}={given[name]}: give it as VIEW=COLUMN,DELAY", field="watermark")
    return column.strip(), delay.strip()


def _statement(text: str) -> str:
    if not text.startswith("@"):
        return text
    try:
        return Path(text.removeprefix("@")).read_text()
    except OSError as error:
        raise Invalid(f"--sql {text}: {error.strerror}", field="sql") from error


TRANSFORM = JobKind("transform", "run SQL from topics to a topic, as a stream", _add_options, _open)
