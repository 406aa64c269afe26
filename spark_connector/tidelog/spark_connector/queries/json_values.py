"""Values that are JSON, as columns: ``read(spark, subscribe="web", value="json", schema="path string, status int")``.

The column `value` becomes a struct of the schema's fields. The column `corrupt_value` has the text of a value that is
not JSON of that schema, and null for the others; `value` is null then. A record without a value, or with an
empty one, has null in both.

The schema is a `StructType`, Spark's text for one (``"path string, status int"``), or the path of a file
(``Path("web.schema.json")``). If that file does not exist, or no schema is given, it is inferred from a bounded sample:
the first records of the read in up to 16 partitions. It is logged, and saved in the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import StringType, StructField, StructType

from tidelog.spark_connector.options.read_options import ReadOptions
from tidelog.spark_connector.reads.broker_connection import BrokerConnection
from tidelog.spark_connector.reads.slices import PartitionRange, reads_logger
from tidelog.spark_connector.reads.snapshot import TopicSnapshot
from tidelog.storage.errors import Invalid

ValueSchema: TypeAlias = StructType | str | Path | None

CORRUPT_VALUE = "corrupt_value"
SAMPLED_PARTITIONS_MAX = 16
SAMPLED_RECORDS_MAX = 100
"""Of each partition."""


def with_json_value(frame: DataFrame, schema: StructType) -> DataFrame:
    """`frame` with `value` as a struct, and `corrupt_value` after it."""
    parsed = StructType([*schema, StructField(CORRUPT_VALUE, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT_VALUE}
    found = F.from_json(F.col("value").cast("string"), parsed, options)
    corrupt = found.getField(CORRUPT_VALUE)
    whole = F.when(corrupt.isNull(), found.dropFields(CORRUPT_VALUE))
    columns = [name for name in frame.columns if name != "value"]
    at = frame.columns.index("value")
    named = [F.col(name) for name in columns]
    return frame.select(*named[:at], whole.alias("value"), corrupt.alias(CORRUPT_VALUE), *named[at:])


def value_schema(
    spark: SparkSession, options: ReadOptions, topics: list[TopicSnapshot], given: ValueSchema
) -> StructType:
    """The schema that is given, or one of a sample. Raises `Invalid` if it is not one, or if there is nothing to
    infer it from."""
    if isinstance(given, StructType):
        return given
    if isinstance(given, str):
        return _parsed(given)
    if given is not None and given.exists():
        return StructType.fromJson(json.loads(given.read_text()))
    found = _inferred(spark, list(_sampled(options, topics)))
    if given is not None:
        given.write_text(found.json())
    kept = f"saved in {given}" if given else "pass it as schema= to keep it"
    reads_logger.warning("schema of values, from a sample: %s; %s", found.simpleString(), kept)
    return found


def _parsed(text: str) -> StructType:
    try:
        found = StructType.fromDDL(text)
    except Exception as error:  # Spark's parser raises several kinds
        raise Invalid(f"schema is not one that Spark understands: {text[:200]!r}", field="schema") from error
    if not isinstance(found, StructType):
        raise Invalid(f"schema names no fields: {text[:200]!r}; write it as 'path string, status int'", field="schema")
    return found


def _inferred(spark: SparkSession, values: list[str]) -> StructType:
    found = spark.read.json(spark.sparkContext.parallelize(values, 1)).schema
    fields = [field for field in found if field.name != "_corrupt_record"]
    if not fields:
        raise Invalid(
            f"no schema follows from the {len(values)} values of the sample: they are not JSON objects. Give schema=",
            field="schema",
        )
    return StructType(fields)


def _sampled(options: ReadOptions, topics: list[TopicSnapshot]) -> Iterator[str]:
    ranges = ((topic.topic.name, each) for topic in topics for each in topic.ranges if each.start < each.end)
    with BrokerConnection(options.broker) as connection:
        for name, each in islice(ranges, SAMPLED_PARTITIONS_MAX):
            yield from _first_values(connection, name, each)


def _first_values(connection: BrokerConnection, topic: str, each: PartitionRange) -> Iterator[str]:
    end = min(each.end, each.start + SAMPLED_RECORDS_MAX)
    for batch in connection.fetch(topic, each.ends.partition, each.start, end).batches:
        for value in batch.column("value").to_pylist():
            if value is not None:
                yield value.decode(errors="replace")
