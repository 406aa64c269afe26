"""Batches as the bytes that `tidelog topic consume` prints.

Values alone, the usual case, are joined by Arrow without a Python object per record; another format or JSON goes record
by record.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.client import Batch, Record
from tidelog.client.consumer import records_of
from tidelog.services.cli.line_format import VALUES_ONLY, LineFormat

Render = Callable[[Batch], bytes | memoryview]


def renderer(topic: str, line_format: str, *, as_json: bool) -> Render:
    """What turns a batch into output. Raises `Invalid` for a format that cannot be read."""
    if as_json:
        return lambda batch: b"".join(_json_line(topic, record) for record in records_of(batch))
    if line_format == VALUES_ONLY:
        return _values
    parsed = LineFormat(line_format, topic)
    return lambda batch: b"".join(map(parsed.render, records_of(batch)))


def _values(batch: Batch) -> bytes:
    """Each value and a newline; a null value is an empty line."""
    return b"".join(_lines_of(chunk) for chunk in batch.records.column("value").chunks)


def _lines_of(values: pa.Array[Any]) -> memoryview | bytes:
    if not len(values):
        return b""
    newline = pa.scalar(b"\n", pa.binary())
    nothing = pa.scalar(b"", pa.binary())
    joined = cast(Any, pc).binary_join_element_wise(
        values, nothing, newline, null_handling="replace", null_replacement=""
    )
    _, offsets, data = joined.buffers()
    ends = memoryview(offsets).cast("i")
    return memoryview(data)[ends[joined.offset] : ends[joined.offset + len(joined)]]


def _json_line(topic: str, record: Record) -> bytes:
    line = {
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [{"key": key, "value": _text(value)} for key, value in record.headers],
    }
    return msgspec.json.encode(line) + b"\n"


def _text(data: bytes | None) -> object:
    """As the HTTP interface has it: a string where the bytes are UTF-8, base64 where not, null where there are none."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
