"""Writes records as a page: a JSON array, as every answer with records of this interface has it.

    [{"topic":"t","key":null,"value":{"a":1},"partition":0,"offset":7,"timestamp":1700000000000}]

- `json`: keys and values are the bytes of the log. Each is checked to be exactly one JSON text, so that a record cannot
  forge other records of the page. A page ends before the first record that is not JSON; a page that would begin with it
  raises `NotJson`.
- `binary`: base64.

`headers` is there if a record has any: ``[{"key": "trace", "value": "base64"}]``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
from msgspec import UNSET, UnsetType

from tidelog.services.http.kafka_rest.rest_errors import Code, RestError
from tidelog.services.http.kafka_rest.rest_media import Format

INLINE_BYTES_MAX = 5 << 18
"""A larger page is written in a thread. One of 1 MiB, the default of clients, holds the event loop for about 2 ms."""
_INT64 = pa.int64()
_ENCODER = msgspec.json.Encoder()
_CHECK = msgspec.json.Decoder(msgspec.Raw).decode
_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
CellsOf: TypeAlias = Callable[["pa.Array[Any]"], Sequence[msgspec.Raw | bytes | None]]
"""The cells of a column of keys or values: JSON texts, or bytes that are written as base64."""


class _Record(msgspec.Struct, gc=False):
    """A record as it is written."""

    topic: str
    key: msgspec.Raw | bytes | None
    value: msgspec.Raw | bytes | None
    partition: int
    offset: int
    timestamp: int
    headers: list[dict[str, Any]] | UnsetType = UNSET


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


async def page_of(runs: Sequence[Run], kind: Format, size_bytes: int) -> Page:
    """The page with the records of `runs`, which take about `size_bytes`. Raises `NotJson`."""
    return write_page(runs, kind) if size_bytes <= INLINE_BYTES_MAX else await asyncio.to_thread(write_page, runs, kind)


def write_page(runs: Sequence[Run], kind: Format) -> Page:
    """As `page_of`."""
    if kind is Format.BINARY:
        return _written(runs, _binary_cells)
    try:
        page = _written(runs, _json_cells)
        _check_utf8(page.body)
    except _NOT_JSON:
        return _written_in_part(runs)
    return page


def _written(runs: Sequence[Run], cells_of: CellsOf) -> Page:
    records = [record for run in runs for batch in run.batches for record in _records(run, batch, cells_of)]
    return Page(_ENCODER.encode(records), [_after_last(run) for run in runs])


def _written_in_part(runs: Sequence[Run]) -> Page:
    """The page of the records of each run before its first one that is not JSON. Raises `NotJson` if there is none."""
    shorter, refusal = [], None
    for run in runs:
        part, error = _json_part(run)
        shorter.append(part)
        refusal = refusal or error
    page = _written(shorter, _json_cells)
    if refusal and all(next_offset is None for next_offset in page.next_offsets):
        raise refusal
    return page


def _json_part(run: Run) -> tuple[Run, NotJson | None]:
    kept: list[pa.RecordBatch] = []
    for batch in run.batches:
        for row in range(batch.num_rows):
            try:
                for name in ("key", "value"):
                    _check_json(batch.column(name)[row].as_py())
            except _NOT_JSON as error:
                kept.append(batch.slice(0, row))
                offset: int = batch.column("offset")[row].as_py()
                return replace(run, batches=kept), NotJson(run.topic, run.partition, offset, str(error))
        kept.append(batch)
    return run, None


def _records(run: Run, batch: pa.RecordBatch, cells_of: CellsOf) -> Iterator[_Record]:
    columns = (
        repeat(run.topic),
        cells_of(batch.column("key")),
        cells_of(batch.column("value")),
        repeat(run.partition),
        _numbers(batch.column("offset")),
        _numbers(batch.column("timestamp")),
    )
    headers = batch.column("headers")
    if headers.null_count == len(headers):
        return map(_Record, *columns)
    return map(_Record, *columns, [given or UNSET for given in headers.to_pylist()])


def _numbers(column: pa.Array[Any]) -> list[int]:
    numbers: Any = column.view(_INT64)
    plain: list[int] = numbers.to_pylist()
    return plain


def _json_cells(column: pa.Array[Any]) -> list[msgspec.Raw | None]:
    """The text of each cell. Raises an error of `_NOT_JSON` if one is not JSON."""
    cells: Any = column.to_pylist()
    if column.null_count == len(column):
        return list(cells)
    if column.null_count:
        return [None if cell is None else _CHECK(cell) for cell in cells]
    return list(map(_CHECK, cells))


def _binary_cells(column: pa.Array[Any]) -> list[bytes | None]:
    cells: list[bytes | None] = column.to_pylist()
    return cells


def _check_json(cell: bytes | None) -> None:
    if cell is not None:
        _CHECK(cell)
        _check_utf8(cell)


def _check_utf8(text: bytes) -> None:
    """The parser does not check the texts that it skips."""
    if not text.isascii():
        text.decode()


def _after_last(run: Run) -> int | None:
    last = next((batch for batch in reversed(run.batches) if batch.num_rows), None)
    if last is None:
        return None
    offset: int = last.column("offset")[-1].as_py()
    return offset + 1
