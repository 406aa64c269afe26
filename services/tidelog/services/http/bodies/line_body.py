"""Decodes ``application/x-ndjson`` and ``text/plain``: each line is a record, and its bytes are the value.

- Text lines are kept byte for byte, including empty lines and carriage returns. Bytes after the last newline are a
  record, too.
- Each NDJSON line must be one JSON value. Blank lines are skipped.
- `LineFields` names the fields of JSON lines that hold a record's key and timestamp.

A body is cut into pieces of whole lines, so that only the lines of one piece are Python objects at one time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa

from tidelog.services.broker.api.produce import Draft
from tidelog.services.http.bodies.draft_columns import BINARY, RecordColumns, check_record_count, draft_of, joined
from tidelog.services.http.bodies.timestamps import parse_iso_ms
from tidelog.services.http.bodies.typed_json import parse_typed
from tidelog.storage.errors import Invalid
from tidelog.storage.object_store import Body
from tidelog.storage.records import TIMESTAMP, TIMESTAMP_MS_MAX
from tidelog.wire.errors import Unreadable

PIECE_BYTES = 1 << 16
COUNTED_BYTES = 1 << 18
_NEWLINE = re.compile(rb"\n")
_VALUE = msgspec.json.Decoder(msgspec.Raw)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_STRING = msgspec.json.Decoder(str)
_TIME = msgspec.json.Decoder(int | str | None)


@dataclass(frozen=True)
class LineFields:
    """Paths into JSON objects; dots descend. None: the line does not give this field."""

    key: str | None = None
    timestamp: str | None = None


LinesOf = Callable[[bytes, int], list[tuple[int, bytes]]]
"""Divides a piece into records with their line numbers, given the number of its first line."""


def decode_text(body: Body, records_max: int, fields: LineFields) -> Draft:
    """Decode text. Raises `Invalid` with the line's number if `fields` are given and a line is no JSON object."""
    return _decode(body, records_max, fields, _text_lines)


def decode_ndjson(body: Body, records_max: int, fields: LineFields) -> Draft:
    """Decode JSON lines. Raises `Unreadable` with the line's number if a line is not JSON."""
    return _decode(body, records_max, fields, _json_lines)


def _decode(body: Body, records_max: int, fields: LineFields, lines_of: LinesOf) -> Draft:
    """Counts the lines before any of them becomes an object."""
    check_record_count(count_bytes(body, b"\n"), records_max)
    number, count, pieces = 1, 0, []
    for piece in _pieces(body):
        lines = lines_of(piece, number)
        count += len(lines)
        check_record_count(count, records_max)
        pieces.append(_columns(lines, fields))
        if len(piece) < len(body):
            number += count_bytes(piece, b"\n")
    return draft_of(joined(pieces), len(body))


def _pieces(body: Body) -> Iterator[bytes]:
    """Cut `body` into pieces of about `PIECE_BYTES`. Each piece except the last ends with a newline."""
    if isinstance(body, bytes) and 0 < len(body) <= PIECE_BYTES:
        yield body
        return
    start = 0
    while start < len(body):
        newline = _NEWLINE.search(body, start + PIECE_BYTES - 1)
        end = newline.end() if newline else len(body)
        yield bytes(body[start:end])
        start = end


def count_bytes(body: Body, mark: bytes) -> int:
    """Count the byte `mark` in `body`. numpy is many times faster than `bytes.count`."""
    number = 0
    for first in range(0, len(body), COUNTED_BYTES):
        block = np.frombuffer(body, np.uint8, min(COUNTED_BYTES, len(body) - first), first)
        number += int(np.count_nonzero(block == mark[0]))
    return number


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


def _columns(lines: Sequence[tuple[int, bytes]], fields: LineFields) -> RecordColumns:
    keys = None if fields.key is None else pa.array([_key(line, n, fields.key) for n, line in lines], BINARY)
    times = None if fields.timestamp is None else [_time_ms(line, n, fields.timestamp) for n, line in lines]
    return RecordColumns(
        pa.array([line for _, line in lines], BINARY),
        keys,
        None if times is None else pa.array(times, pa.int64()).cast(TIMESTAMP),
    )


def _at(line: bytes, number: int, path: str) -> msgspec.Raw | None:
    """The value at `path` in the object of a line; None if there is no such field."""
    here: msgspec.Raw | bytes | None = line
    for name in path.split("."):
        if here is None:
            return None
        try:
            here = _OBJECT.decode(here).get(name)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Invalid(
                f"line {number}: {name!r} of {path!r} is looked up in a value that is no JSON object: {error}",
                field=f"line {number}",
            ) from None
    assert not isinstance(here, bytes), "a path has at least one name"
    return here


def _key(line: bytes, number: int, path: str) -> bytes | None:
    """The key of a line: the text of a string, the JSON of any other value. Null or no value means no key."""
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
