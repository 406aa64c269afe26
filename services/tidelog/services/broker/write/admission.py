"""Checks records against the limits of their topic and sets timestamps, over whole Arrow columns.

All of this happens before any record is accepted (inv. 10), and no single record is touched in Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.coordinator.topics.topic import TopicConfig
from tidelog.services.broker.shard.record_columns import byte_lengths, timestamps_ms
from tidelog.storage.errors import Invalid, TooLarge
from tidelog.storage.records import DRAFT_SCHEMA, TIMESTAMP, TIMESTAMP_MS_MAX

_TIMESTAMP_FIELD = DRAFT_SCHEMA.field("timestamp")


@dataclass(frozen=True)
class Admitted:
    """`records` (`DRAFT_SCHEMA`) with every timestamp set, and per record the bytes of key and value and the
    timestamp."""

    records: pa.Table
    payload_bytes: npt.NDArray[np.int64]
    timestamps_ms: npt.NDArray[np.int64]


def admit(records: pa.Table, config: TopicConfig, *, key_bytes_max: int, now_ms: int) -> Admitted:
    """Check `records` (`DRAFT_SCHEMA`) and set their timestamps. Raises `Invalid`, `TooLarge`."""
    if records.schema != DRAFT_SCHEMA:
        raise Invalid(f"the records must have the schema {DRAFT_SCHEMA}, not {records.schema}")
    if not records.num_rows:
        raise Invalid("the request contains no record", field="records")
    keys, record_bytes = records.column("key"), byte_lengths(records.column("value"))
    _check_all_have_keys(keys, config)
    if keys.null_count < len(keys):
        key_bytes = byte_lengths(keys)
        _check_largest(key_bytes, key_bytes_max, "a key", "key.max.bytes")
        record_bytes = record_bytes + key_bytes
    _check_largest(record_bytes, config.max_message_bytes, "a record (key and value)", "max.message.bytes")
    given = records.column("timestamp")
    if config.message_timestamp_type == "LogAppendTime" or given.null_count == len(given):
        numbers = np.full(len(given), now_ms, np.int64)
        now = pa.Array.from_buffers(TIMESTAMP, len(given), [None, pa.py_buffer(numbers.data)])
        return Admitted(records.set_column(0, _TIMESTAMP_FIELD, now), record_bytes, numbers)
    if not given.null_count:
        numbers = timestamps_ms(records)
        if numbers.min() >= 0 and numbers.max() <= TIMESTAMP_MS_MAX:
            return Admitted(records, record_bytes, numbers)
    stamped = records.set_column(0, _TIMESTAMP_FIELD, _filled(given, now_ms))
    return Admitted(stamped, record_bytes, timestamps_ms(stamped))


def _check_all_have_keys(keys: Any, config: TopicConfig) -> None:
    if keys.null_count and "compact" in config.cleanup_policy:
        raise Invalid(
            "a record has no key, but cleanup.policy=compact keeps the newest record of each key: give each record a "
            "key, or set the topic's cleanup.policy to delete",
            field="key",
            record=pc.index(keys.is_null(), True).as_py(),
        )


def _check_largest(sizes: npt.NDArray[np.int64], bytes_max: int, what: str, limit_name: str) -> None:
    if (largest := int(sizes.max())) > bytes_max:
        raise TooLarge(
            f"{what} has {largest:,} bytes; {limit_name} allows {bytes_max:,}",
            limit_name=limit_name,
            limit_bytes=bytes_max,
            record=int(sizes.argmax()),
        )


def _filled(timestamps: Any, now_ms: int) -> Any:
    """`timestamps`, checked, with `now_ms` in place of nulls."""
    numbers = timestamps.cast(pa.int64())
    bounds = pc.min_max(numbers)
    for wrong in (bounds["min"].as_py(), bounds["max"].as_py()):
        if not 0 <= wrong <= TIMESTAMP_MS_MAX:
            row = pc.index(numbers, wrong).as_py()
            raise Invalid("a timestamp must lie between the years 1970 and 9999", field="timestamp", record=row)
    return timestamps.fill_null(pa.scalar(now_ms, TIMESTAMP)) if timestamps.null_count else timestamps
