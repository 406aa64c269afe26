"""What a topic accepts: limits on records checked and timestamps stamped, over whole Arrow columns.

All of it is decided before anything is taken (inv. 10), and none of it touches a single record in Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.coordinator.topic import TopicConfig
from tidelog.storage.errors import Invalid, TooLarge
from tidelog.storage.records import DRAFT_SCHEMA, TIMESTAMP

TIMESTAMP_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999: ISO 8601 and Spark know no later one."""


@dataclass(frozen=True)
class Admitted:
    """`records` (`DRAFT_SCHEMA`) with every timestamp set; of each the bytes of key and value, and the timestamp."""

    records: pa.Table
    payload_bytes: npt.NDArray[np.int64]
    timestamps_ms: npt.NDArray[np.int64]


def admit(records: pa.Table, config: TopicConfig, *, key_bytes_max: int, now_ms: int) -> Admitted:
    """`records` (`DRAFT_SCHEMA`) as the topic takes them. Raises `Invalid`, `TooLarge`."""
    if records.schema != DRAFT_SCHEMA:
        raise Invalid(f"records have the schema {records.schema}, not {DRAFT_SCHEMA}")
    if not records.num_rows:
        raise Invalid("there is no record in the request", field="records")
    key_bytes = _byte_lengths(records.column("key"))
    _check_keys(records.column("key"), key_bytes, config, key_bytes_max)
    record_bytes = key_bytes + _byte_lengths(records.column("value"))
    _check_sizes(record_bytes, config)
    stamped = records.set_column(0, DRAFT_SCHEMA.field("timestamp"), _stamped(records.column(0), config, now_ms))
    return Admitted(stamped, record_bytes, timestamps_ms(stamped))


def timestamps_ms(records: pa.Table | pa.RecordBatch) -> npt.NDArray[np.int64]:
    """The `timestamp` column, without nulls, as numbers; no copy where it is one chunk."""
    column: Any = records.column("timestamp").cast(pa.int64())
    numbers: npt.NDArray[np.int64] = column.to_numpy()
    return numbers


def payload_bytes(records: pa.Table | pa.RecordBatch) -> npt.NDArray[np.int64]:
    """The bytes of key and value of each record."""
    return _byte_lengths(records.column("key")) + _byte_lengths(records.column("value"))


def _byte_lengths(column: Any) -> npt.NDArray[np.int64]:
    if column.null_count == len(column):
        return np.zeros(len(column), np.int64)
    lengths = pc.binary_length(column)
    numbers: npt.NDArray[np.int32] = (lengths.fill_null(0) if column.null_count else lengths).to_numpy()
    return numbers.astype(np.int64)


def _check_keys(keys: Any, key_bytes: npt.NDArray[np.int64], config: TopicConfig, key_bytes_max: int) -> None:
    if keys.null_count and "compact" in config.cleanup_policy:
        raise Invalid("a record has no key, and a compacted topic takes none without: give each a key", field="key")
    if (longest := int(key_bytes.max())) > key_bytes_max:
        raise TooLarge(
            f"a key has {longest:,} bytes; key.max.bytes allows {key_bytes_max:,}",
            limit_name="key.max.bytes",
            limit_bytes=key_bytes_max,
        )


def _check_sizes(record_bytes: npt.NDArray[np.int64], config: TopicConfig) -> None:
    if (largest := int(record_bytes.max())) > config.max_message_bytes:
        raise TooLarge(
            f"a record has {largest:,} bytes of key and value; the topic's max.message.bytes allows "
            f"{config.max_message_bytes:,}",
            limit_name="max.message.bytes",
            limit_bytes=config.max_message_bytes,
        )


def _stamped(timestamps: Any, config: TopicConfig, now_ms: int) -> Any:
    now = pa.scalar(now_ms, TIMESTAMP)
    if config.message_timestamp_type == "LogAppendTime" or timestamps.null_count == len(timestamps):
        return pa.chunked_array([pa.repeat(now, len(timestamps))])
    bounds = pc.min_max(timestamps.cast(pa.int64()))
    if bounds["min"].as_py() < 0 or bounds["max"].as_py() > TIMESTAMP_MS_MAX:
        raise Invalid("a timestamp lies before 1970 or after the year 9999", field="timestamp")
    return timestamps.fill_null(now) if timestamps.null_count else timestamps
