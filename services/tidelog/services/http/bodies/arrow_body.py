"""Decodes ``application/vnd.apache.arrow.stream``: the fast path, which touches no single record in Python.

Arrow trusts its input: a crafted offset reads outside the body and ends the process (inv. 10). So the order of checks
matters: first the frames and the sizes that they claim (`arrow_framing`), then the schema, which must match exactly,
then each batch, validated in full. The columns are views of the body, unless its buffers are compressed.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidelog.services.broker.api.produce import Draft
from tidelog.services.http.bodies.arrow_framing import StreamClaims, read_claims
from tidelog.services.http.bodies.draft_columns import BINARY, PARTITION, RecordColumns, check_record_count, draft_of
from tidelog.storage.errors import Invalid, TooLarge
from tidelog.storage.object_store import Body
from tidelog.storage.records import HEADERS, TIMESTAMP
from tidelog.wire.errors import Unreadable

_TYPES: dict[str, pa.DataType] = {
    "value": BINARY,
    "key": BINARY,
    "timestamp": TIMESTAMP,
    "headers": HEADERS,
    "partition": PARTITION,
}


def decode_arrow(body: Body, records_max: int, expanded_bytes_max: int) -> Draft:
    """Decode an IPC stream. Raises `Unreadable` if it is none, `Invalid` for another schema or too many records,
    `TooLarge` if its buffers expand to more than `expanded_bytes_max`."""
    claims = read_claims(body)
    check_claims(claims, records_max, expanded_bytes_max)
    return decode_claimed(body, claims, records_max)


def check_claims(claims: StreamClaims, records_max: int, expanded_bytes_max: int) -> None:
    """Check a stream before any of it is expanded. Raises `TooLarge`, `Invalid`."""
    if claims.expanded_bytes > expanded_bytes_max:
        raise TooLarge(
            f"the Arrow buffers expand to {claims.expanded_bytes} bytes: send fewer records per request",
            limit_name="request.max.bytes",
            limit_bytes=expanded_bytes_max,
        )
    check_record_count(claims.records, records_max)


def decode_claimed(body: Body, claims: StreamClaims, records_max: int) -> Draft:
    """As `decode_arrow`, for a stream whose `claims` were checked."""
    table = _read_table(body)
    check_record_count(table.num_rows, records_max)
    columns = {name: table.column(name) for name in table.column_names}
    records = RecordColumns(
        columns["value"],
        columns.get("key"),
        columns.get("timestamp"),
        _headers(columns["headers"]) if "headers" in columns else None,
        columns.get("partition"),
    )
    return draft_of(records, max(len(body), claims.expanded_bytes))


def _read_table(body: Body) -> pa.Table:
    options = pa.ipc.IpcReadOptions(use_threads=False)
    try:
        with pa.ipc.open_stream(pa.py_buffer(body), options=options) as reader:
            _check_schema(reader.schema)
            batches = []
            for batch in reader:
                batch.validate(full=True)
                batches.append(batch)
            return pa.Table.from_batches(batches, reader.schema)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Unreadable(f"the Arrow IPC stream does not match its headers: {error}") from None


def _check_schema(schema: pa.Schema) -> None:
    for field in schema:
        expected = _TYPES.get(field.name)
        if expected is None:
            raise Invalid(
                f"column {field.name[:80]!r} is unknown: the columns are {', '.join(_TYPES)}", field=field.name[:80]
            )
        if not _same_type(field.type, expected):
            raise Invalid(f"column {field.name} must be {expected}, not {str(field.type)[:200]}", field=field.name)
    if len(set(schema.names)) != len(schema.names):
        raise Invalid("a column occurs twice: send each column once")
    if "value" not in schema.names:
        raise Invalid("the column value (binary) is missing: it is required", field="value")


def _same_type(given: pa.DataType, expected: pa.DataType) -> bool:
    """Compares types, but ignores whether a header's key may be null and how list items are named."""
    if not pa.types.is_list(expected):
        return given.equals(expected)
    if not (pa.types.is_list(given) and pa.types.is_struct(given.value_type)):
        return False
    return [(f.name, f.type) for f in given.value_type] == [(f.name, f.type) for f in expected.value_type]


def _headers(column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    chunks: Any = [_headers_chunk(chunk) for chunk in column.chunks]
    return pa.chunked_array(chunks or [pa.array([], HEADERS)])


def _headers_chunk(chunk: Any) -> pa.Array[Any]:
    """The same buffers with the log's header type, whose key is never null."""
    items = chunk.values
    if items.null_count or items.field("key").null_count:
        raise Invalid("a header is null or has no key: each header needs a key", field="headers")
    children = [items.field("key"), items.field("value")]
    entries = pa.Array.from_buffers(HEADERS.value_type, len(items), [None], 0, 0, children)
    return pa.Array.from_buffers(HEADERS, len(chunk), chunk.buffers()[:2], chunk.null_count, chunk.offset, [entries])
