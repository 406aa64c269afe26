"""Decodes ``application/json``.

    {"records": [{"value": V, "key": V, "timestamp": T, "headers": [{"key": "k", "value": V}], "partition": 0}]}

V is ``"text"``, ``{"base64": "…"}``, ``{"json": any}`` or null, so the forms cannot be confused. The value of ``json``
is kept as its bytes in the body. The parser is typed: it checks records while it parses them, and only values that are
not plain text are converted one by one. OpenAPI is made from these types; `extra_json_schema` states bounds there that
are checked elsewhere.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import msgspec
import pyarrow as pa
from msgspec import UNSET, UnsetType

from tidelog.services.broker.api.produce import Draft
from tidelog.services.http.bodies.draft_columns import (
    BINARY,
    PARTITION,
    RecordColumns,
    check_record_count,
    draft_of,
    joined,
)
from tidelog.services.http.bodies.json_pieces import PIECE_BYTES, decoded_pieces
from tidelog.services.http.bodies.timestamps import parse_iso_ms
from tidelog.services.http.bodies.typed_json import parse_typed
from tidelog.storage.errors import Invalid
from tidelog.storage.object_store import Body
from tidelog.storage.records import HEADERS, TIMESTAMP, TIMESTAMP_MS_MAX
from tidelog.wire.errors import Unreadable

_BASE64 = msgspec.Meta(extra_json_schema={"contentEncoding": "base64"})
_ONE_MEMBER = msgspec.Meta(extra_json_schema={"minProperties": 1, "maxProperties": 1})
_NOT_EMPTY = msgspec.Meta(extra_json_schema={"minItems": 1})
_TIME_MS = msgspec.Meta(extra_json_schema={"minimum": 0, "maximum": TIMESTAMP_MS_MAX})
_ISO_TIME = msgspec.Meta(extra_json_schema={"format": "date-time"})


class Encoded(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Bytes that are not plain text: exactly one of the two members."""

    base64: Annotated[str, _BASE64] | UnsetType = UNSET
    json: msgspec.Raw | UnsetType = UNSET


Payload: TypeAlias = str | Annotated[Encoded, _ONE_MEMBER] | None


class HeaderForm(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One header of a record."""

    key: str
    value: Payload


class RecordForm(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One record."""

    value: Payload
    key: Payload = None
    timestamp: Annotated[int, _TIME_MS] | Annotated[str, _ISO_TIME] | None = None
    headers: list[HeaderForm] | None = None
    partition: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None


class RecordsForm(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The records of a produce."""

    records: Annotated[list[RecordForm], _NOT_EMPTY]


class HeadersForm(msgspec.Struct, gc=False):
    """The text of a record's headers; its other members are skipped."""

    headers: msgspec.Raw = msgspec.Raw(b"")


LARGE_PIECE_BYTES = 1 << 20
HEADERS_TEXT_BYTES_MAX = 1 << 20
"""The size of one record's headers in a large piece. It is checked before any header becomes an object."""
_DECODER = msgspec.json.Decoder(RecordsForm)
_PIECE_DECODER = msgspec.json.Decoder(list[RecordForm])
_HEADERS_DECODER = msgspec.json.Decoder(list[HeadersForm])
_ROW = re.compile(r"records\[(\d+)\]")
_PIECE_PATH = re.compile(r"\[(\d+)\](.*)", re.DOTALL)


def decode_json(body: Body, records_max: int) -> Draft:
    """Decode `body`. Raises `Unreadable` if it is not JSON, `Invalid` with the path of the field and the index of the
    record if it has another form, or more than `records_max` records."""
    try:
        return draft_of(joined(_decoded(body, records_max)), len(body))
    except Invalid as error:
        if row := _ROW.match(error.field or ""):
            error.record = int(row[1])
        raise


def _decoded(body: Body, records_max: int) -> Sequence[RecordColumns]:
    """Decodes piece by piece, and counts the records before it decodes the next piece."""
    if len(body) <= PIECE_BYTES:
        records = parse_typed(_DECODER, body).records
        check_record_count(len(records), records_max)
        return [_columns(records, 0)]
    count, pieces = 0, []
    for records in decoded_pieces(body, _decode_piece):
        check_record_count(count + len(records), records_max)
        pieces.append(_columns(records, count))
        count += len(records)
    return pieces


def _decode_piece(piece: bytes, first: int) -> list[RecordForm]:
    """`first`: the index in the body of the first record of `piece`."""
    try:
        if len(piece) > LARGE_PIECE_BYTES:
            _check_headers_text(piece, first)
        return parse_typed(_PIECE_DECODER, piece)
    except Invalid as error:
        found = _PIECE_PATH.fullmatch(error.field or "")
        if found is None:
            where = f"in the part of the body that begins with record {first}"
            raise type(error)(f"{error} ({where})", field=error.field) from None
        path = f"records[{first + int(found[1])}]{found[2]}"
        raise type(error)(str(error).replace(found[0], path, 1), field=path) from None


def _check_headers_text(piece: bytes, first: int) -> None:
    """A piece is large only if one of its records is, and only the headers of a record can become many objects."""
    records = parse_typed(_HEADERS_DECODER, piece)
    for row, record in enumerate(records, first):
        if len(memoryview(record.headers)) > HEADERS_TEXT_BYTES_MAX:
            path = f"records[{row}].headers"
            raise Invalid(f"{path} take more than {HEADERS_TEXT_BYTES_MAX} bytes: send fewer headers", field=path)


def _columns(records: Sequence[RecordForm], first: int) -> RecordColumns:
    """`first`: the index in the body of the first of `records`, for messages."""
    keys = [record.key for record in records]
    timestamps = [record.timestamp for record in records]
    headers = [record.headers for record in records]
    partitions = [record.partition for record in records]
    return RecordColumns(
        _payload_column([record.value for record in records], "value", first),
        None if _all_none(keys) else _payload_column(keys, "key", first),
        None if _all_none(timestamps) else _timestamp_column(timestamps, first),
        None if _all_none(headers) else _header_column(headers, first),
        None if _all_none(partitions) else pa.array(partitions, PARTITION),
    )


def _all_none(cells: Sequence[object]) -> bool:
    return cells.count(None) == len(cells)


def _payload_column(cells: Sequence[Payload], name: str, first: int) -> pa.Array[Any]:
    """A binary column. Text is converted in one call, not cell by cell."""
    if any(type(cell) is Encoded for cell in cells):
        cells = [_payload(cell, f"records[{row}].{name}") for row, cell in enumerate(cells, first)]  # type: ignore[misc]
    return pa.array(cells, BINARY)


def _payload(cell: Payload, path: str) -> str | bytes | None:
    if not isinstance(cell, Encoded):
        return cell
    if (cell.base64 is UNSET) == (cell.json is UNSET):
        raise Invalid(f'{path} must be {{"base64": "…"}} or {{"json": …}}, with exactly one of the two', field=path)
    if isinstance(cell.json, msgspec.Raw):
        return _json_bytes(cell.json, path)
    assert isinstance(cell.base64, str), "exactly one member is set"
    try:
        return binascii.a2b_base64(cell.base64, strict_mode=True)
    except ValueError as error:
        raise Invalid(f"{path}.base64 is not base64 (RFC 4648, section 4): {error}", field=f"{path}.base64") from None


def _json_bytes(raw: msgspec.Raw, path: str) -> bytes:
    """The bytes of a JSON value. The parser checked everything except their UTF-8."""
    text = bytes(raw)
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path}.json is not UTF-8: {error.reason}", field=f"{path}.json") from None
    return text


def _timestamp_column(cells: Sequence[int | str | None], first: int) -> pa.Array[Any]:
    times = [
        None if cell is None else _timestamp_ms(cell, f"records[{row}].timestamp")
        for row, cell in enumerate(cells, first)
    ]
    return pa.array(times, pa.int64()).cast(TIMESTAMP)


def _timestamp_ms(cell: int | str, path: str) -> int:
    if isinstance(cell, str):
        try:
            return parse_iso_ms(cell)
        except ValueError as error:
            raise Invalid(f"{path} is ms since 1970 or ISO 8601 with a zone: {error}", field=path) from None
    if not 0 <= cell <= TIMESTAMP_MS_MAX:
        raise Invalid(f"{path} is a number of ms from 0 to {TIMESTAMP_MS_MAX}", field=path)
    return cell


def _header_column(rows: Sequence[list[HeaderForm] | None], first: int) -> pa.Array[Any]:
    cells = [
        None
        if headers is None
        else [
            (header.key, _payload(header.value, f"records[{row}].headers[{n}].value"))
            for n, header in enumerate(headers)
        ]
        for row, headers in enumerate(rows, first)
    ]
    return pa.array(cells, HEADERS)
