"""Turns lines into records, for `tidelog topic produce`: key, value, timestamp and headers.

- Plain lines: the line is the value. Arrow does it, without Python code per line.
- Keys and times by `LineShape.key_of` and `time_of`: from the line's text or a field of its JSON.
- Record lines (`from_json`): each line is a record as `tidelog topic consume --json` prints it. ``value`` is needed;
  ``key``, ``timestamp`` and ``headers`` are not; ``topic``, ``partition`` and ``offset`` are ignored. A key or
  value is a text, null, ``{"base64": "…"}`` or ``{"json": any}``.

Then `headers` and `timestamp_ms` are set on every record, and with `tombstones` an empty value becomes null.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, UnsetType

from tidelog.services.cli.input_lines import Lines
from tidelog.services.http.bodies.timestamps import parse_iso_ms
from tidelog.storage.errors import Invalid
from tidelog.storage.records import HEADERS, TIMESTAMP_MS_MAX

KeyOf = Callable[[bytes], tuple[bytes | None, bytes]]
"""From a line to its key and its value."""
TimeOf = Callable[[bytes], int | None]
"""From a line to its timestamp, in ms since 1970 UTC."""
Header: TypeAlias = tuple[str, bytes | None]


@dataclass(frozen=True)
class LineShape:
    """How a line becomes a record. `key_required`: a line without a key is wrong."""

    key_of: KeyOf | None = None
    key_required: bool = False
    time_of: TimeOf | None = None
    from_json: bool = False
    headers: tuple[Header, ...] = ()
    timestamp_ms: int | None = None
    tombstones: bool = False

    @property
    def has_keys(self) -> bool:
        """Whether records may have keys."""
        return self.from_json or self.key_of is not None

    def table(self, lines: Lines) -> tuple[pa.Table, Invalid | None]:
        """Lines as a table with `value` and the columns that the shape asks for. The table ends before the first line
        that is wrong; the error says why."""
        if self.key_of is None and self.time_of is None and not self.from_json:
            return self._completed(pa.table({"value": lines})), None
        records: list[LineRecord] = []
        wrong = None
        for line in cast("list[bytes]", lines.to_pylist()):
            try:
                records.append(self._record(line))
            except Invalid as error:
                wrong = error
                break
        return self._completed(self._columns(records)), wrong

    def _record(self, line: bytes) -> LineRecord:
        if self.from_json:
            return _record_of(line)
        key, value = (None, line) if self.key_of is None else self.key_of(line)
        if key is None and self.key_required:
            raise Invalid(f"it has no key: {line[:80]!r}. Add --allow-missing-key if that is right", field="key")
        return LineRecord(key, value, None if self.time_of is None else self.time_of(line), ())

    def _columns(self, records: list[LineRecord]) -> pa.Table:
        columns: dict[str, pa.Array[Any]] = {"value": pa.array([record.value for record in records], pa.binary())}
        if self.has_keys:
            columns["key"] = pa.array([record.key for record in records], pa.binary())
        if self.from_json or self.time_of is not None:
            columns["timestamp"] = pa.array([record.timestamp_ms for record in records], pa.int64())
        if self.from_json:
            columns["headers"] = pa.array([_pairs(record.headers) for record in records], HEADERS)
        return pa.table(columns)

    def _completed(self, table: pa.Table) -> pa.Table:
        if self.timestamp_ms is not None:
            table = table.append_column("timestamp", pa.repeat(pa.scalar(self.timestamp_ms, pa.int64()), len(table)))
        if self.headers:
            table = table.append_column("headers", pa.repeat(pa.scalar(_pairs(self.headers), HEADERS), len(table)))
        if self.tombstones:
            values: Any = table.column("value")
            empty: Any = pc.equal(pc.binary_length(values), pa.scalar(0, pa.int32()))
            at = table.column_names.index("value")
            table = table.set_column(at, "value", cast(Any, pc).if_else(empty, pa.scalar(None, pa.binary()), values))
        return table


class LineRecord(NamedTuple):
    """A line as a record."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None
    headers: tuple[Header, ...]


def key_finder(text: str) -> KeyOf:
    """The function that ``-k`` asks for. ``json:FIELD`` (dots descend) takes the key from a JSON field and leaves the
    line as it is. Any other text is a separator between key and value (``\\t`` is a tab). Raises `Invalid`."""
    if text.startswith("json:"):
        return _json_key(_path(text))
    separator = text.replace("\\t", "\t").encode()
    if not separator:
        raise Invalid("the key separator is empty: use -k : or -k json:user.id", field="key")

    def split_off(line: bytes) -> tuple[bytes | None, bytes]:
        key, found, value = line.partition(separator)
        return (key, value) if found else (None, line)

    return split_off


def time_finder(text: str) -> TimeOf:
    """The function that ``--timestamp json:FIELD`` asks for. Raises `Invalid`."""
    path = _path(text)

    def take_out(line: bytes) -> int | None:
        found = _at(line, path)
        return None if found is None else time_ms(found)

    return take_out


def time_ms(value: object) -> int:
    """Ms since 1970 UTC, from such a number or a text in ISO 8601 with a zone. Raises `Invalid`."""
    try:
        if isinstance(value, str):
            value = int(value) if re.fullmatch(r"\d{1,19}", value, re.ASCII) else parse_iso_ms(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= TIMESTAMP_MS_MAX:
            return value
    except ValueError as error:
        raise Invalid(f"{str(value)[:40]!r} is no time: {error}", field="timestamp") from error
    raise Invalid(
        f"{str(value)[:40]} is no time: use ms since 1970, or ISO 8601 as 2026-01-31T12:00:00Z", field="timestamp"
    )


def header_of(text: str) -> Header:
    """``NAME=VALUE``; without ``=`` the header has no value. Raises `Invalid`."""
    name, equals, value = text.partition("=")
    if not name:
        raise Invalid(f"a header is NAME=VALUE, as trace=7, not {text!r}", field="header")
    return name, value.encode("utf-8", "surrogateescape") if equals else None


class _Payload(msgspec.Struct):
    base64: str | UnsetType = UNSET
    json: msgspec.Raw | UnsetType = UNSET


class _Header(msgspec.Struct):
    key: str
    value: str | _Payload | None = None


class _Line(msgspec.Struct):
    value: str | _Payload | None
    key: str | _Payload | None = None
    timestamp: int | str | None = None
    headers: list[_Header] = []


_LINE = msgspec.json.Decoder(_Line)


def _record_of(line: bytes) -> LineRecord:
    try:
        found = _LINE.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"it is no record as consume --json prints it ({error}): {line[:80]!r}", field="value") from error
    return LineRecord(
        _bytes(found.key),
        _bytes(found.value),
        None if found.timestamp is None else time_ms(found.timestamp),
        tuple((header.key, _bytes(header.value)) for header in found.headers),
    )


def _bytes(payload: str | _Payload | None) -> bytes | None:
    if payload is None or isinstance(payload, str):
        return None if payload is None else payload.encode()
    if isinstance(payload.json, msgspec.Raw) and payload.base64 is UNSET:
        return bytes(payload.json)
    if isinstance(payload.base64, str) and payload.json is UNSET:
        try:
            return base64.b64decode(payload.base64, validate=True)
        except binascii.Error as error:
            raise Invalid(f"{payload.base64[:80]!r} is no base64: {error}", field="value") from error
    raise Invalid('a key or value is a text, null, {"base64": "…"} or {"json": …}', field="value")


def _pairs(headers: tuple[Header, ...]) -> list[dict[str, object]] | None:
    return [{"key": key, "value": value} for key, value in headers] or None


def _path(text: str) -> list[str]:
    names = text.removeprefix("json:").split(".")
    if not all(names):
        raise Invalid(f"{text} names no field: use json:user.id", field="key")
    return names


def _json_key(path: list[str]) -> KeyOf:
    def take_out(line: bytes) -> tuple[bytes | None, bytes]:
        value = _at(line, path)
        if value is None:
            return None, line
        return (value.encode() if isinstance(value, str) else msgspec.json.encode(value)), line

    return take_out


def _at(line: bytes, path: list[str]) -> object:
    try:
        value: object = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise Invalid(f"it is not JSON ({error}): {line[:80]!r}", field="key") from error
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
