"""The columns of a write are those of Spark's Kafka sink.

    value       string or binary   required
    key         string or binary   decides the partition, as in Kafka (murmur2)
    headers     array<struct<key: string, value: binary>>
    topic       string             required without the option `topic`
    partition   int                instead of the one of the key

Other columns are ignored, as by Kafka's sink, so that rows that were read can be written. `check_columns` runs before
the job; `draft_columns` refuses rows that no broker would take, before anything is published.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructField, StructType

from tidelog.storage.errors import Invalid

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: dict[str, tuple[str, tuple[DataType, ...]]] = {
    "value": ("STRING or BINARY", (StringType(), BinaryType())),
    "key": ("STRING or BINARY", (StringType(), BinaryType())),
    "headers": ("ARRAY<STRUCT<key: STRING, value: BINARY>>", (ArrayType(_HEADER),)),
    "topic": ("STRING", (StringType(),)),
    "partition": ("INT", (IntegerType(),)),
}
PAYLOAD = ("key", "value", "headers")


def check_columns(schema: StructType, topic: str | None) -> None:
    """`topic`: the option. Raises `Invalid`."""
    if "value" not in schema.names:
        raise Invalid("required attribute 'value' not found: add a column value (STRING or BINARY)", field="value")
    if topic is None and "topic" not in schema.names:
        raise Invalid("no topic: set the option 'topic', or add a column topic (STRING)", field="topic")
    for column in schema:
        expected = _TYPES.get(column.name)
        if expected and not any(_same_type(column.dataType, kind) for kind in expected[1]):
            raise Invalid(
                f"{column.name} attribute type must be {expected[0]}, not {column.dataType.simpleString()}",
                field=column.name,
            )
    twice = next((name for name in _TYPES if schema.names.count(name) > 1), None)
    if twice:
        raise Invalid(f"there are several columns {twice}: keep one", field=twice)


def _same_type(given: DataType, expected: DataType) -> bool:
    """Compares types, but ignores what may be null."""
    if isinstance(given, ArrayType) and isinstance(expected, ArrayType):
        of, wanted = given.elementType, expected.elementType
        assert isinstance(wanted, StructType)
        names = [(field.name, field.dataType) for field in of] if isinstance(of, StructType) else []
        return names == [(field.name, field.dataType) for field in wanted]
    return type(given) is type(expected)


def draft_columns(batch: pa.RecordBatch) -> dict[str, pa.Array[Any]]:
    """`PAYLOAD`, as far as `batch` has them and they are not null in every row, in the types of a produce. Raises
    `Invalid` for a header without a key."""
    found: dict[str, pa.Array[Any]] = {}
    for name in PAYLOAD:
        if name not in batch.schema.names:
            continue
        column = batch.column(name)
        if name == "value" or column.null_count < len(column):
            found[name] = _checked_headers(column) if name == "headers" else column.cast(pa.binary())
    return found


def topics_of(batch: pa.RecordBatch, topic: str | None) -> Any:
    """The topic of each row, dictionary-encoded. Raises `Invalid` for a row without one."""
    if topic is not None:
        codes = pa.repeat(pa.scalar(0, pa.int32()), batch.num_rows)
        return pa.DictionaryArray.from_arrays(codes, pa.array([topic]))
    column: Any = batch.column("topic").cast(pa.string())
    if column.null_count:
        raise Invalid("null topic present in the data: use the option 'topic' to set one", field="topic")
    return column.dictionary_encode()


def _checked_headers(column: Any) -> Any:
    entries: Any = pc.list_flatten(column)
    if entries.null_count or entries.field("key").null_count:
        raise Invalid("a header is null or has no key: each header needs a key", field="headers")
    return column
