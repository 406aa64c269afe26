"""``application/x-ndjson`` and ``text/plain``: a record a line, the line's bytes its value.

Text lines are kept byte for byte, empty ones and carriage returns too; what follows the last newline, if anything, is
a record. NDJSON lines have to be JSON, one value each, and blank ones are skipped. `LineFields` names the fields of
JSON lines that give a record's key and timestamp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from tidelog.services.broker.api import Draft
from tidelog.services.http.bodies.draft_columns import BINARY, check_record_count, draft_of
from tidelog.services.http.bodies.typed_json import parse_typed
from tidelog.services.http.positions import TIMESTAMP_MS_MAX, parse_iso_ms
from tidelog.services.http.problems import Unreadable
from tidelog.storage.errors import Invalid
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


def decode_text(body: bytes, records_max: int, fields: LineFields) -> Draft:
    """Each line a record. `Invalid` with the line's number if `fields` are asked for and it is no JSON object."""
    check_record_count(body.count(b"\n"), records_max)
    lines = body.split(b"\n")
    if not lines[-1]:
        lines.pop()
    check_record_count(len(lines), records_max)
    return _draft(list(enumerate(lines, 1)), body, fields)


def decode_ndjson(body: bytes, records_max: int, fields: LineFields) -> Draft:
    """Each line that is not blank a record. `Unreadable` with the line's number if one is not JSON."""
    check_record_count(body.count(b"\n"), records_max)
    _check_utf8(body)
    lines = [(number, line) for number, line in enumerate(body.split(b"\n"), 1) if line and not line.isspace()]
    check_record_count(len(lines), records_max)
    try:
        for _, line in lines:
            _VALUE.decode(line)
    except (msgspec.DecodeError, RecursionError):
        _name_bad_line(lines)
        raise
    return _draft(lines, body, fields)


def _check_utf8(body: bytes) -> None:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise Unreadable(f"line {line} is not UTF-8: {error.reason}", field=f"line {line}") from None


def _name_bad_line(lines: Sequence[tuple[int, bytes]]) -> None:
    """Raise the refusal of the first line that is not JSON."""
    for number, line in lines:
        try:
            parse_typed(_VALUE, line, f"line {number}")
        except Unreadable as error:
            raise Unreadable(str(error), field=f"line {number}") from None


def _draft(lines: Sequence[tuple[int, bytes]], body: bytes, fields: LineFields) -> Draft:
    keys = None if fields.key is None else pa.array([_key(line, n, fields.key) for n, line in lines], BINARY)
    times = None if fields.timestamp is None else [_time_ms(line, n, fields.timestamp) for n, line in lines]
    return draft_of(
        pa.array([line for _, line in lines], BINARY),
        key=keys,
        timestamp=None if times is None else pa.array(times, pa.int64()).cast(TIMESTAMP),
        body_bytes=len(body),
    )


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
