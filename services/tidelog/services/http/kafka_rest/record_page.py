"""Writes records as a page: a JSON array, as every answer with records of this interface has it.

    [{"topic":"t","key":null,"value":{"a":1},"partition":0,"offset":7,"timestamp":1700000000000}]

- `json`: keys and values are the bytes of the log. Each is checked to be one JSON text, so that no record can put words
  into the mouth of another. A page ends before the first record that is not JSON; a page that would begin with it
  raises `NotJson`.
- `binary`: base64.

`headers` is there if a record has any: ``[{"key": "trace", "value": "base64"}]``.
"""

from __future__ import annotations

import asyncio
from binascii import b2a_base64
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from tidelog.services.http.kafka_rest.rest_errors import Code, RestError
from tidelog.services.http.kafka_rest.rest_media import Format

INLINE_BYTES_MAX = 1 << 20
"""A larger page is written in a thread. A smaller one holds the event loop for some ms at most."""
_INT64 = pa.int64()
_NULL = b"null"
_CHECK = msgspec.json.Decoder(msgspec.Raw).decode


@dataclass(frozen=True)
class Run:
    """Records of one partition, in order."""

    topic: str
    partition: int
    batches: Sequence[pa.RecordBatch]


@dataclass(frozen=True)
class Page:
    """`body`: the page. `next_offsets`: for each run, the offset after its last record in the page; None if there is
    none."""

    body: bytes
    next_offsets: Sequence[int | None]


class NotJson(RestError):
    """The record at `offset` is not JSON."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(
            Code.SERIALIZATION,
            f"the record at offset {offset} of partition {partition} of {topic!r} is not JSON ({reason}): read it with "
            "the format binary, or seek past it",
        )


async def page_of(runs: Sequence[Run], kind: Format) -> Page:
    """The page with the records of `runs`. Raises `NotJson`."""
    size_bytes = sum(batch.nbytes for run in runs for batch in run.batches)
    return write_page(runs, kind) if size_bytes <= INLINE_BYTES_MAX else await asyncio.to_thread(write_page, runs, kind)


def write_page(runs: Sequence[Run], kind: Format) -> Page:
    """As `page_of`."""
    texts: list[bytes] = []
    next_offsets: list[int | None] = []
    refusal: NotJson | None = None
    for run in runs:
        next_offset: int | None = None
        for batch in run.batches:
            written = _records(run, batch, kind)
            texts += written.texts
            next_offset = next_offset if written.next_offset is None else written.next_offset
            if written.refusal:
                refusal = refusal or written.refusal
                break
        next_offsets.append(next_offset)
    if refusal and not texts:
        raise refusal
    return Page(b"[%b]" % b",".join(texts), next_offsets)


@dataclass(frozen=True)
class _Written:
    """Records as text, up to the one that cannot be written."""

    texts: list[bytes]
    next_offset: int | None
    refusal: NotJson | None = None


def _records(run: Run, batch: pa.RecordBatch, kind: Format) -> _Written:
    if not batch.num_rows:
        return _Written([], None)
    offsets = _numbers(batch.column("offset"))
    if kind is Format.BINARY:
        keys, values = _base64_texts(batch.column("key")), _base64_texts(batch.column("value"))
        return _Written(_texts(run, keys, values, offsets, batch), offsets[-1] + 1)
    keys, values = _json_texts(batch.column("key")), _json_texts(batch.column("value"))
    count, reason = _json_count(keys, values)
    refusal = None if count == len(offsets) else NotJson(run.topic, run.partition, offsets[count], reason)
    texts = _texts(run, keys[:count], values[:count], offsets[:count], batch.slice(0, count))
    return _Written(texts, offsets[count - 1] + 1 if count else None, refusal)


def _texts(
    run: Run, keys: Sequence[bytes], values: Sequence[bytes], offsets: Sequence[int], batch: pa.RecordBatch
) -> list[bytes]:
    start = b'{"topic":%b,"key":' % msgspec.json.encode(run.topic)
    middle = b',"partition":%d,"offset":' % run.partition
    stamps = _numbers(batch.column("timestamp"))
    headers = batch.column("headers")
    form = start.replace(b"%", b"%%") + b'%b,"value":%b' + middle + b'%d,"timestamp":%d'
    if headers.null_count == len(headers):
        form += b"}"
        return [form % row for row in zip(keys, values, offsets, stamps, strict=True)]
    form += b"%b}"
    rows = zip(keys, values, offsets, stamps, map(_headers, headers.to_pylist()), strict=True)
    return [form % row for row in rows]


def _headers(headers: list[dict[str, Any]] | None) -> bytes:
    """The member `headers` after the others; empty if there are none."""
    return b',"headers":' + msgspec.json.encode(headers) if headers else b""


def _numbers(column: pa.Array[Any]) -> list[int]:
    numbers: Any = column.view(_INT64)
    plain: list[int] = numbers.to_pylist()
    return plain


def _json_texts(column: pa.Array[Any]) -> list[bytes]:
    if column.null_count == len(column):
        return [_NULL] * len(column)
    cells: Any = column.to_pylist()
    return [_NULL if cell is None else cell for cell in cells] if column.null_count else list(cells)


def _base64_texts(column: pa.Array[Any]) -> list[bytes]:
    if column.null_count == len(column):
        return [_NULL] * len(column)
    return [_NULL if cell is None else b'"%b"' % b2a_base64(cell, newline=False) for cell in column.to_pylist()]


def _json_count(keys: Sequence[bytes], values: Sequence[bytes]) -> tuple[int, str]:
    """How many records at the start are JSON, and why the next one is not."""
    try:
        for cells in (keys, values):
            deque(map(_CHECK, cells), maxlen=0)
            _check_utf8(b"".join(cells))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _first_other(keys, values)
    return len(values), ""


def _first_other(keys: Sequence[bytes], values: Sequence[bytes]) -> tuple[int, str]:
    for row, cells in enumerate(zip(keys, values, strict=True)):
        for name, cell in zip(("key", "value"), cells, strict=True):
            try:
                _CHECK(cell)
                _check_utf8(cell)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                return row, f"its {name}: {error}"
    raise AssertionError("some record was not JSON")


def _check_utf8(text: bytes) -> None:
    """The parser does not check the texts that it skips."""
    if not text.isascii():
        text.decode()
