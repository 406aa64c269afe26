"""Reads a request into an object of kio's class for it.

kio's own reader is not used, because it cannot read what strangers send: it reserves memory for as many entries as an
array claims to have, which ends the process, and it refuses tagged fields that it does not know, which KIP-482 demands
to skip. Its classes say which fields there are and of which types; a reader for each class is made once from them.
The format of the types: https://kafka.apache.org/protocol#protocol_types
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import timedelta
from types import NoneType
from typing import Any, TypeAlias, get_args
from uuid import UUID

from kio.schema.errors import ErrorCode

from tidelog.services.kafka.protocol.api import Malformed

Read: TypeAlias = "Callable[[memoryview, int], tuple[Any, int]]"
"""Reads a value at an offset; also returns the offset after it. Raises `Malformed`, `struct.error`."""

_NUMBERS = {
    "int8": ">b",
    "int16": ">h",
    "int32": ">i",
    "int64": ">q",
    "uint16": ">H",
    "uint32": ">I",
    "float64": ">d",
    "bool": ">?",
}
_UUID_BYTES = 16
_VARINT_BYTES_MAX = 5
_NULL = -1
ENTRIES_MAX = 200_000
"""Of all arrays of a request together: twice `partitions.max`, so a request can name all partitions. An entry of two
bytes becomes an object of some hundred, and its answer may be larger: without the bound a request of
`socket.request.max.bytes` would stand still all connections for minutes."""
_READERS: dict[type[Any], Read] = {}
"""One for each class that was needed."""


class _Entries(threading.local):
    """How many entries the request that the thread reads may still have."""

    left = 0


_entries = _Entries()


def read_request(schema: type[Any], body: memoryview) -> Any:
    """The request of class `schema` that `body` begins with. Raises `Malformed`.

    Bytes behind it are ignored, as Kafka does: librdkafka sends three with Metadata of all topics, from version 9 on
    (https://github.com/confluentinc/librdkafka/issues/5049)."""
    _entries.left = ENTRIES_MAX
    try:
        request, _ = entity_reader(schema)(body, 0)
    except (struct.error, UnicodeDecodeError, ValueError, OverflowError) as error:
        raise Malformed(f"the request is not a {schema.__name__} of version {schema.__version__}: {error}") from error
    return request


def entity_reader(schema: type[Any]) -> Read:
    """The reader of objects of `schema`."""
    if schema not in _READERS:
        _READERS[schema] = _entity(schema)
    return _READERS[schema]


def nested_class(annotation: Any) -> type[Any] | None:
    """The class of messages that `annotation`, for example ``tuple[X, ...] | None``, is about."""
    if isinstance(annotation, type) and is_dataclass(annotation):
        return annotation
    return next((found for part in get_args(annotation) if (found := nested_class(part))), None)


def is_nullable(field: Field[Any]) -> bool:
    return NoneType in get_args(field.type)


def is_array(field: Field[Any]) -> bool:
    return "tuple" in str(field.type)


def empty_value(field: Field[Any]) -> Any:
    """The value of a field that is not given."""
    if field.default is not MISSING:
        return field.default
    return None if is_nullable(field) else zero_value(field)


def zero_value(field: Field[Any]) -> Any:
    """The value that stands for nothing in a field that cannot be null."""
    if is_array(field):
        return ()
    kind = field.metadata.get("kafka_type", "")
    zeros = {"string": "", "bytes": b"", "records": None, "bool": False, "uuid": None, "error_code": ErrorCode.none}
    return timedelta(0) if kind.startswith("timedelta") else zeros.get(kind, 0)


def _entity(schema: type[Any]) -> Read:
    flexible = bool(schema.__flexible__)
    plain = [(f.name, _field(f, flexible)) for f in fields(schema) if "tag" not in f.metadata]
    tagged = {f.metadata["tag"]: (f.name, _field(f, flexible)) for f in fields(schema) if "tag" in f.metadata}
    absent = {f.name: empty_value(f) for f in fields(schema) if "tag" in f.metadata}

    def read(body: memoryview, at: int) -> tuple[Any, int]:
        values = dict(absent)
        for name, read_field in plain:
            values[name], at = read_field(body, at)
        if flexible:
            at = _read_tagged(body, at, tagged, values)
        return schema(**values), at

    return read


def _read_tagged(body: memoryview, at: int, known: Mapping[int, tuple[str, Read]], values: dict[str, Any]) -> int:
    """Put the known tagged fields into `values`, and skip the others. Returns the offset after them."""
    count, at = read_varint(body, at)
    for _ in range(count):
        tag, at = read_varint(body, at)
        size, at = read_varint(body, at)
        value = _bytes_at(body, at, size)
        if tag in known:
            name, read = known[tag]
            values[name], _end = read(value, 0)
        at += size
    return at


def _field(field: Field[Any], flexible: bool) -> Read:
    read = _any_field(field, flexible)
    return read if is_nullable(field) else _not_null(read, field.name)


def _not_null(read: Read, name: str) -> Read:
    def read_value(body: memoryview, at: int) -> tuple[Any, int]:
        value, end = read(body, at)
        if value is None:
            raise Malformed(f"{name} is null")
        return value, end

    return read_value


def _any_field(field: Field[Any], flexible: bool) -> Read:
    nested = nested_class(field.type)
    if is_array(field):
        if nested:
            return _array(entity_reader(nested), flexible)
        item = _scalar(field.metadata["kafka_type"], flexible)
        return _array(_not_null(item, f"an entry of {field.name}"), flexible)
    if nested:
        return _nullable(entity_reader(nested)) if is_nullable(field) else entity_reader(nested)
    return _scalar(field.metadata["kafka_type"], flexible)


def _array(item: Read, flexible: bool) -> Read:
    def read(body: memoryview, at: int) -> tuple[Any, int]:
        count, at = _length(body, at, flexible, 4)
        if count == _NULL:
            return None, at
        if count > len(body) - at:  # an entry takes at least a byte
            raise Malformed(f"an array of {count:,} entries is in {len(body) - at} bytes")
        _entries.left -= count
        if _entries.left < 0:
            raise Malformed(f"the request has more than {ENTRIES_MAX:,} entries: send several requests")
        items = []
        for _ in range(count):
            value, at = item(body, at)
            items.append(value)
        return tuple(items), at

    return read


def _nullable(item: Read) -> Read:
    """A structure that may be null begins with -1 if it is (KIP-893)."""

    def read(body: memoryview, at: int) -> tuple[Any, int]:
        (mark,) = struct.unpack_from(">b", body, at)
        return (None, at + 1) if mark < 0 else item(body, at + 1)

    return read


def _scalar(kind: str, flexible: bool) -> Read:
    if kind in _NUMBERS:
        return _number(struct.Struct(_NUMBERS[kind]))
    if kind == "string":
        return lambda body, at: _text(*_sized(body, at, flexible, 2))
    if kind == "bytes":
        return lambda body, at: _blob(*_sized(body, at, flexible, 4))
    if kind == "records":
        return lambda body, at: _sized(body, at, flexible, 4)  # a part of the frame, not a copy
    others: Mapping[str, Read] = {
        "uuid": _uuid,
        "error_code": _number(struct.Struct(">h"), ErrorCode),
        "timedelta_i32": _number(struct.Struct(">i"), _milliseconds),
        "timedelta_i64": _number(struct.Struct(">q"), _milliseconds),
    }
    return others[kind]


def _number(form: struct.Struct, made: Callable[[Any], Any] | None = None) -> Read:
    def read(body: memoryview, at: int) -> tuple[Any, int]:
        (value,) = form.unpack_from(body, at)
        return (made(value) if made else value), at + form.size

    return read


def _milliseconds(value: int) -> timedelta:
    return timedelta(milliseconds=value)


def _uuid(body: memoryview, at: int) -> tuple[UUID | None, int]:
    value = UUID(bytes=bytes(_bytes_at(body, at, _UUID_BYTES)))
    return value if value.int else None, at + _UUID_BYTES


def _text(value: memoryview | None, at: int) -> tuple[str | None, int]:
    return None if value is None else str(value, "utf-8"), at


def _blob(value: memoryview | None, at: int) -> tuple[bytes | None, int]:
    return None if value is None else bytes(value), at


def _sized(body: memoryview, at: int, flexible: bool, length_bytes: int) -> tuple[memoryview | None, int]:
    """The bytes of a string or blob, None for null."""
    size, at = _length(body, at, flexible, length_bytes)
    return (None, at) if size == _NULL else (_bytes_at(body, at, size), at + size)


def _length(body: memoryview, at: int, flexible: bool, length_bytes: int) -> tuple[int, int]:
    """A length, or -1 for null: a varint of one more in a flexible version, else a number of `length_bytes`."""
    if flexible:
        value, at = read_varint(body, at)
        return value - 1, at
    (value,) = struct.unpack_from(">h" if length_bytes == 2 else ">i", body, at)
    if value < _NULL:
        raise Malformed(f"a length is {value}")
    return value, at + length_bytes


def _bytes_at(body: memoryview, at: int, size: int) -> memoryview:
    if size > len(body) - at:
        raise Malformed(f"a field of {size:,} bytes is in the last {len(body) - at} bytes")
    return body[at : at + size]


def read_varint(body: memoryview, at: int) -> tuple[int, int]:
    """An unsigned varint, and the offset after it. Raises `Malformed`."""
    value = 0
    for place in range(_VARINT_BYTES_MAX):
        if at + place >= len(body):
            break
        byte = body[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise Malformed("a varint does not end")
