"""``application/json``: ``{"records": [{"value": V, "key": V, "timestamp": T, "headers": [...], "partition": 0}]}``.

V is ``"text"``, ``{"base64": "…"}``, ``{"json": any}`` or null, so the three forms cannot be confused. `{"json": …}`
is kept as the bytes that stand in the body. The parser is typed, so a record is checked while it is parsed, and only
values that are not plain text are touched one by one afterwards.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import msgspec
import pyarrow as pa
from msgspec import UNSET, UnsetType

from tidelog.services.broker.api.produce import Draft
from tidelog.services.http.answers.problems import Unreadable
from tidelog.services.http.bodies.draft_columns import BINARY, PARTITION, Column, check_record_count, draft_of
from tidelog.services.http.bodies.json_pieces import PIECE_BYTES, decoded_pieces
from tidelog.services.http.bodies.typed_json import parse_typed
from tidelog.services.http.v1.positions import TIMESTAMP_MS_MAX, parse_iso_ms
from tidelog.storage.errors import Invalid
from tidelog.storage.object_store import Body
from tidelog.storage.records import HEADERS, TIMESTAMP


class Encoded(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Bytes that are not plain text; exactly one of the two is there."""

    base64: str | UnsetType = UNSET
    json: msgspec.Raw | UnsetType = UNSET


Payload: TypeAlias = str | Encoded | None


class HeaderForm(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One header of a record."""

    key: str
    value: Payload


class RecordForm(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One record as a client writes it."""

    value: Payload
    key: Payload = None
    timestamp: int | str | None = None
    headers: list[HeaderForm] | None = None
    partition: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None


class RecordsForm(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The whole body."""

    records: list[RecordForm]


class HeadersForm(msgspec.Struct, gc=False):
    """The headers of a record as text; all else of it is skipped."""

    headers: msgspec.Raw = msgspec.Raw(b"")


LARGE_PIECE_BYTES = 1 << 20
HEADERS_TEXT_BYTES_MAX = 1 << 20
"""Of one record in a large piece: its headers are measured before any is an object."""
_DECODER = msgspec.json.Decoder(RecordsForm)
_PIECE_DECODER = msgspec.json.Decoder(list[RecordForm])
_HEADERS_DECODER = msgspec.json.Decoder(list[HeadersForm])
_ROW = re.compile(r"records\[(\d+)\]")
_PIECE_PATH = re.compile(r"\[(\d+)\](.*)", re.DOTALL)


@dataclass(frozen=True)
class _Columns:
    """Some records, column by column; one that is null in every row is None."""

    count: int
    value: pa.Array[Any]
    key: pa.Array[Any] | None
    timestamp: pa.Array[Any] | None
    headers: pa.Array[Any] | None
    partitions: pa.Array[Any] | None


def decode_json(body: Body, records_max: int) -> Draft:
    """The records of `body`. `Unreadable` if it is not JSON; `Invalid` with the field's path, and the record's index,
    if it is of another form than above, or has more than `records_max` records."""
    try:
        return _draft(_decoded(body, records_max), len(body))
    except Invalid as error:
        if row := _ROW.match(error.field or ""):
            error.record = int(row[1])
        raise


def _decoded(body: Body, records_max: int) -> Sequence[_Columns]:
    """The records piece by piece; they are counted before the next piece is decoded."""
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
    """`first`: the number in the body of the first record of `piece`."""
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
    """A piece is large if a record in it is: only its headers can make many objects."""
    records = parse_typed(_HEADERS_DECODER, piece)
    for row, record in enumerate(records, first):
        if len(memoryview(record.headers)) > HEADERS_TEXT_BYTES_MAX:
            path = f"records[{row}].headers"
            raise Invalid(f"{path} take more than {HEADERS_TEXT_BYTES_MAX} bytes: send fewer", field=path)


def _draft(pieces: Sequence[_Columns], body_bytes: int) -> Draft:
    return draft_of(
        _values(pieces),
        key=_joined([piece.key for piece in pieces], pieces, BINARY),
        timestamp=_joined([piece.timestamp for piece in pieces], pieces, TIMESTAMP),
        headers=_joined([piece.headers for piece in pieces], pieces, HEADERS),
        partitions=_joined([piece.partitions for piece in pieces], pieces, PARTITION),
        body_bytes=body_bytes,
    )


def _columns(records: Sequence[RecordForm], first: int) -> _Columns:
    """`first`: the number of the first of `records` in the body, for messages."""
    keys = [record.key for record in records]
    timestamps = [record.timestamp for record in records]
    headers = [record.headers for record in records]
    partitions = [record.partition for record in records]
    return _Columns(
        len(records),
        _payload_column([record.value for record in records], "value", first),
        None if _all_none(keys) else _payload_column(keys, "key", first),
        None if _all_none(timestamps) else _timestamp_column(timestamps, first),
        None if _all_none(headers) else _header_column(headers, first),
        None if _all_none(partitions) else pa.array(partitions, PARTITION),
    )


def _values(pieces: Sequence[_Columns]) -> Column:
    return pieces[0].value if len(pieces) == 1 else pa.chunked_array([piece.value for piece in pieces], BINARY)


def _joined(columns: Sequence[pa.Array[Any] | None], pieces: Sequence[_Columns], kind: Any) -> Column | None:
    """A column of all pieces; None if it is null in every row."""
    if len(columns) == 1:
        return columns[0]
    if all(column is None for column in columns):
        return None
    chunks: Any = [
        pa.nulls(piece.count, kind) if column is None else column for column, piece in zip(columns, pieces, strict=True)
    ]
    return pa.chunked_array(chunks, kind)


def _all_none(cells: Sequence[object]) -> bool:
    return cells.count(None) == len(cells)


def _payload_column(cells: Sequence[Payload], name: str, first: int) -> pa.Array[Any]:
    """A binary column; text goes over in one call, without a look at each."""
    if any(type(cell) is Encoded for cell in cells):
        cells = [_payload(cell, f"records[{row}].{name}") for row, cell in enumerate(cells, first)]  # type: ignore[misc]
    return pa.array(cells, BINARY)


def _payload(cell: Payload, path: str) -> str | bytes | None:
    if not isinstance(cell, Encoded):
        return cell
    if (cell.base64 is UNSET) == (cell.json is UNSET):
        raise Invalid(f'{path}: say {{"base64": "…"}} or {{"json": …}}, exactly one of the two', field=path)
    if isinstance(cell.json, msgspec.Raw):
        return _json_bytes(cell.json, path)
    assert isinstance(cell.base64, str), "one of the two is there"
    try:
        return binascii.a2b_base64(cell.base64, strict_mode=True)
    except ValueError as error:
        raise Invalid(f"{path}.base64 is not base64 (RFC 4648, section 4): {error}", field=f"{path}.base64") from None


def _json_bytes(raw: msgspec.Raw, path: str) -> bytes:
    """The bytes of a JSON value as they stand; the parser has checked all but their UTF-8."""
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
