"""``application/x-ndjson`` and ``text/plain``: a record a line, the line's bytes its value.

Text lines are kept byte for byte, empty ones and carriage returns too; what follows the last newline, if anything, is
a record. NDJSON lines have to be JSON, one value each, and blank ones are skipped. `LineFields` names the fields of
JSON lines that give a record's key and timestamp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from tidelog.services.broker.api.produce import Draft
from tidelog.services.http.answers.problems import Unreadable
from tidelog.services.http.bodies.draft_columns import BINARY, Column, check_record_count, draft_of
from tidelog.services.http.bodies.line_pieces import count_bytes, line_pieces
from tidelog.services.http.bodies.typed_json import parse_typed
from tidelog.services.http.v1.positions import TIMESTAMP_MS_MAX, parse_iso_ms
from tidelog.storage.errors import Invalid
from tidelog.storage.object_store import Body
from tidelog.storage.records import TIMESTAMP

_VALUE = msgspec.json.Decoder(msgspec.Raw)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_STRING = msgspec.json.Decoder(str)
_TIME = msgspec.json.Decoder(int | str | None)


@dataclass(frozen=True)
class LineFields:
    """Paths into lines that are JSON objects; dots descend. None: not taken from the line."""

    key: str | None = None
    timestamp: str | None = None


@dataclass(frozen=True)
class _Columns:
    """Some records, column by column."""

    value: pa.Array[Any]
    key: pa.Array[Any] | None
    timestamp: pa.Array[Any] | None


LinesOf = Callable[[bytes, int], list[tuple[int, bytes]]]
"""The records of a piece with their line numbers, given the number of its first line."""


def decode_text(body: Body, records_max: int, fields: LineFields) -> Draft:
    """Each line a record. `Invalid` with the line's number if `fields` are asked for and it is no JSON object."""
    return _decode(body, records_max, fields, _text_lines)


def decode_ndjson(body: Body, records_max: int, fields: LineFields) -> Draft:
    """Each line that is not blank a record. `Unreadable` with the line's number if one is not JSON."""
    return _decode(body, records_max, fields, _json_lines)


def _decode(body: Body, records_max: int, fields: LineFields, lines_of: LinesOf) -> Draft:
    """The lines are counted before any is made an object, and are objects piece by piece."""
    check_record_count(count_bytes(body, b"\n"), records_max)
    number, count, pieces = 1, 0, []
    for piece in line_pieces(body):
        lines = lines_of(piece, number)
        count += len(lines)
        check_record_count(count, records_max)
        pieces.append(_columns(lines, fields))
        if len(piece) < len(body):
            number += count_bytes(piece, b"\n")
    return draft_of(
        _values(pieces),
        key=_joined([piece.key for piece in pieces]),
        timestamp=_joined([piece.timestamp for piece in pieces]),
        body_bytes=len(body),
    )


def _text_lines(piece: bytes, first: int) -> list[tuple[int, bytes]]:
    lines = piece.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return list(enumerate(lines, first))


def _json_lines(piece: bytes, first: int) -> list[tuple[int, bytes]]:
    _check_utf8(piece, first)
    lines = [(number, line) for number, line in enumerate(piece.split(b"\n"), first) if line and not line.isspace()]
    try:
        for _, line in lines:
            _VALUE.decode(line)
    except (msgspec.DecodeError, RecursionError):
        _name_bad_line(lines)
        raise
    return lines


def _check_utf8(piece: bytes, first: int) -> None:
    try:
        piece.decode()
    except UnicodeDecodeError as error:
        line = first + piece.count(b"\n", 0, error.start)
        raise Unreadable(f"line {line} is not UTF-8: {error.reason}", field=f"line {line}") from None


def _name_bad_line(lines: Sequence[tuple[int, bytes]]) -> None:
    """Raise the refusal of the first line that is not JSON."""
    for number, line in lines:
        try:
            parse_typed(_VALUE, line, f"line {number}")
        except Unreadable as error:
            raise Unreadable(str(error), field=f"line {number}") from None


def _columns(lines: Sequence[tuple[int, bytes]], fields: LineFields) -> _Columns:
    keys = None if fields.key is None else pa.array([_key(line, n, fields.key) for n, line in lines], BINARY)
    times = None if fields.timestamp is None else [_time_ms(line, n, fields.timestamp) for n, line in lines]
    return _Columns(
        pa.array([line for _, line in lines], BINARY),
        keys,
        None if times is None else pa.array(times, pa.int64()).cast(TIMESTAMP),
    )


def _values(pieces: Sequence[_Columns]) -> Column:
    return pieces[0].value if len(pieces) == 1 else pa.chunked_array([piece.value for piece in pieces], BINARY)


def _joined(columns: Sequence[pa.Array[Any] | None]) -> Column | None:
    """A column of all pieces; a column that none has is None."""
    if len(columns) <= 1:
        return columns[0] if columns else None
    there: Any = [column for column in columns if column is not None]
    return pa.chunked_array(there) if there else None


def _at(line: bytes, number: int, path: str) -> msgspec.Raw | None:
    """What stands at `path` in the object of a line; None where there is no such field."""
    here: msgspec.Raw | bytes | None = line
    for name in path.split("."):
        if here is None:
            return None
        try:
            here = _OBJECT.decode(here).get(name)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Invalid(
                f"line {number}: {name!r} of {path!r} is looked up in something that is no JSON object: {error}",
                field=f"line {number}",
            ) from None
    assert not isinstance(here, bytes), "a path has at least one name"
    return here


def _key(line: bytes, number: int, path: str) -> bytes | None:
    """A string as its text, anything else as its JSON; null and nothing as no key."""
    raw = _at(line, number, path)
    text = b"null" if raw is None else bytes(raw)
    if text == b"null":
        return None
    try:
        return _STRING.decode(text).encode() if text.startswith(b'"') else text
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(
            f"line {number}: the key at {path!r} is not UTF-8 text: {error}", field=f"line {number}"
        ) from None


def _time_ms(line: bytes, number: int, path: str) -> int | None:
    raw = _at(line, number, path)
    try:
        time = None if raw is None else _TIME.decode(raw)
        if isinstance(time, str):
            return parse_iso_ms(time)
        if time is not None and not 0 <= time <= TIMESTAMP_MS_MAX:
            raise ValueError(f"it is not in 0 to {TIMESTAMP_MS_MAX}")
    except ValueError as error:  # msgspec's and Unicode's errors are of this kind too
        raise Invalid(
            f"line {number}: the timestamp at {path!r} is ms since 1970 or ISO 8601 with a zone: {error}",
            field=f"line {number}",
        ) from None
    return time
