"""Fetched records as JSON: strings where the bytes are valid UTF-8, ``{"base64": "…"}`` where they are not."""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import UNSET, UnsetType


class Base64(msgspec.Struct):
    """Bytes that are no text."""

    base64: str


PayloadJson = str | Base64 | None


class HeaderJson(msgspec.Struct):
    """One header."""

    key: str
    value: PayloadJson


class RecordJson(msgspec.Struct, gc=False):
    """One record; `partition` is there where an answer holds several."""

    offset: int
    timestamp: int
    key: PayloadJson
    value: PayloadJson
    headers: list[HeaderJson]
    partition: int | UnsetType = UNSET


ENCODER = msgspec.json.Encoder()


def records_json(
    batches: Iterable[pa.RecordBatch], *, base64: bool = False, partition: int | UnsetType = UNSET
) -> Iterator[RecordJson]:
    """The records of `batches` in their order. `base64`: keys and values in the second form always."""
    for batch in batches:
        rows = zip(
            _numbers(batch.column("offset")),
            _numbers(batch.column("timestamp")),
            _payloads(batch.column("key"), base64),
            _payloads(batch.column("value"), base64),
            _header_lists(batch.column("headers"), base64),
            strict=True,
        )
        for offset, timestamp, key, value, headers in rows:
            yield RecordJson(offset, timestamp, key, value, headers, partition)


def _numbers(column: pa.Array[Any]) -> list[int]:
    """Offsets as they are, timestamps as ms since 1970."""
    numbers: Any = column.cast(pa.int64())
    plain: list[int] = numbers.to_pylist()
    return plain


def _payloads(column: pa.Array[Any], base64: bool) -> Sequence[PayloadJson]:
    """A whole column at once where all of it is text, else one by one."""
    if column.null_count == len(column):
        return [None] * len(column)
    if not base64:
        try:
            texts: list[str | None] = column.cast(pa.string()).to_pylist()
        except pa.ArrowInvalid:
            return [_payload(cell, base64) for cell in column.to_pylist()]
        return texts
    return [_payload(cell, base64) for cell in column.to_pylist()]


def _payload(cell: bytes | None, base64: bool) -> PayloadJson:
    if cell is None:
        return None
    if not base64:
        try:
            return cell.decode()
        except UnicodeDecodeError:
            pass  # not text: the second form carries any bytes
    return Base64(binascii.b2a_base64(cell, newline=False).decode())


def _header_lists(column: pa.Array[Any], base64: bool) -> list[list[HeaderJson]]:
    if column.null_count == len(column):
        return [[] for _ in range(len(column))]
    return [
        [HeaderJson(header["key"], _payload(header["value"], base64)) for header in headers or ()]
        for headers in column.to_pylist()
    ]
