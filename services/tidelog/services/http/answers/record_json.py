"""Fetched records as JSON: a document, JSON lines, or the types of `wire.records` for events."""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import msgspec
import pyarrow as pa
from msgspec import UNSET, UnsetType

from tidelog.services.broker.api.fetch import Fetched
from tidelog.wire.polls import TopicRecord
from tidelog.wire.records import Base64, JsonHeader, JsonPayload, JsonRecord

ENCODER = msgspec.json.Encoder()
_INT64 = pa.int64()
_TEXT = pa.string()


class JsonText(Protocol):
    """Text that holds records, written in parts: `head`, groups of records with `between` between them, `tail`."""

    head: bytes
    between: bytes
    tail: bytes

    def records(self, group: Sequence[pa.RecordBatch]) -> bytes:
        """The records of `group`."""
        ...


class RecordDocument:
    """A `wire.records.FetchAnswer`, in parts."""

    between = b","

    def __init__(self, topic: str, partition: int, fetched: Fetched, *, base64: bool = False) -> None:
        self._base64 = base64
        offsets = {
            "next_offset": fetched.next_offset,
            "high_watermark": fetched.high_watermark,
            "log_start_offset": fetched.log_start_offset,
        }
        self.head = ENCODER.encode({"topic": topic, "partition": partition})[:-1] + b',"records":['
        self.tail = b"]," + ENCODER.encode(offsets)[1:]

    def records(self, group: Sequence[pa.RecordBatch]) -> bytes:
        return ENCODER.encode(list(json_records(group, base64=self._base64)))[1:-1]


class RecordLines:
    """One record per line."""

    head = tail = between = b""

    def __init__(self, *, base64: bool = False, partition: int | UnsetType = UNSET) -> None:
        self._base64 = base64
        self._partition = partition

    def records(self, group: Sequence[pa.RecordBatch]) -> bytes:
        return ENCODER.encode_lines(json_records(group, base64=self._base64, partition=self._partition))


def json_records(
    batches: Iterable[pa.RecordBatch], *, base64: bool = False, partition: int | UnsetType = UNSET
) -> Iterator[JsonRecord]:
    """The records of `batches` in their order. `base64`: every key and value as base64."""
    for batch in batches:
        for offset, timestamp, key, value, headers in zip(*_columns(batch, base64), strict=True):
            yield JsonRecord(offset, timestamp, key, value, headers, partition)


def topic_records(batches: Iterable[pa.RecordBatch], *, base64: bool = False) -> Iterator[TopicRecord]:
    """The records of `batches` (`PART_RECORD_SCHEMA`), with their topics and partitions."""
    for batch in batches:
        places = (batch.column("partition").to_pylist(), batch.column("topic").to_pylist())
        for offset, timestamp, key, value, headers, partition, topic in zip(
            *_columns(batch, base64), *places, strict=True
        ):
            yield TopicRecord(offset, timestamp, key, value, headers, partition, topic)


def _columns(batch: pa.RecordBatch, base64: bool) -> tuple[Sequence[Any], ...]:
    """Offsets, timestamps, keys, values and headers."""
    return (
        _numbers(batch.column("offset")),
        _numbers(batch.column("timestamp")),
        _payloads(batch.column("key"), base64),
        _payloads(batch.column("value"), base64),
        _header_lists(batch.column("headers"), base64),
    )


def _numbers(column: pa.Array[Any]) -> list[int]:
    """Offsets as they are; timestamps in ms since 1970."""
    numbers: Any = column.view(_INT64)  # a view costs a tenth of a cast
    plain: list[int] = numbers.to_pylist()
    return plain


def _payloads(column: pa.Array[Any], base64: bool) -> Sequence[JsonPayload]:
    """Converts the whole column at once if all of it is text, otherwise cell by cell."""
    if column.null_count == len(column):
        return [None] * len(column)
    if not base64:
        try:
            texts: list[str | None] = column.view(_TEXT).to_pylist()
            return texts
        except UnicodeDecodeError:
            pass  # a cell is not text
    return [_payload(cell, base64) for cell in column.to_pylist()]


def _payload(cell: bytes | None, base64: bool) -> JsonPayload:
    if cell is None:
        return None
    if not base64:
        try:
            return cell.decode()
        except UnicodeDecodeError:
            pass  # not text: base64 can carry any bytes
    return Base64(binascii.b2a_base64(cell, newline=False).decode())


def _header_lists(column: pa.Array[Any], base64: bool) -> list[list[JsonHeader]]:
    if column.null_count == len(column):
        return [[] for _ in range(len(column))]
    return [
        [JsonHeader(header["key"], _payload(header["value"], base64)) for header in headers or ()]
        for headers in column.to_pylist()
    ]
