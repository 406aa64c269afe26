"""The part of Thrift's compact protocol that Parquet's page headers and footers need.

A struct that is read whole is a mapping from field number to value: numbers (booleans as 0 and 1), bytes, lists,
structs. A large one is read field by field, and values that the caller does not need are skipped. A struct to be
written is a `Struct` whose values carry their types, which the protocol needs for lists; a value that was read from
another struct is written as its `Encoded` bytes. Source: the Thrift project's ``thrift-compact-protocol.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Value = int | bytes | Sequence["Value"] | Mapping[int, "Value"]

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
DEPTH_MAX = 8


class Damaged(ValueError):
    """The bytes do not follow the protocol."""


class StructReader:
    """Reads structs one after another from `data`, beginning at `position`."""

    def __init__(self, data: memoryview, position: int = 0) -> None:
        self._data = data
        self.position = position

    def struct(self, depth: int = 0) -> Mapping[int, Value]:
        """The next struct. Raises `Damaged`."""
        if depth > DEPTH_MAX:
            raise Damaged("structs within structs without end")
        fields: dict[int, Value] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else _unzigzag(self._varint())
            fields[number] = self._value(head & 0x0F, depth)
        return fields

    def fields(self) -> Iterator[tuple[int, int]]:
        """The number and kind of each field of the next struct. The caller reads or skips each value before it asks for
        the next field. Raises `Damaged`."""
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else _unzigzag(self._varint())
            yield number, head & 0x0F

    def number(self) -> int:
        """The value of a field of kind I16, I32 or I64."""
        return _unzigzag(self._varint())

    def items(self) -> Iterator[int]:
        """The kind of each item of a list. The caller reads or skips each item before it asks for the next one."""
        head = self._byte()
        count = head >> 4 if head >> 4 != 15 else self._varint()
        for _ in range(count):
            yield head & 0x0F

    def between(self, start: int, end: int | None = None) -> bytes:
        """The bytes from `start` to `end`; None: to the present position."""
        return bytes(self._data[start : self.position if end is None else end])

    def skip(self, kind: int, depth: int = 0) -> None:
        """Pass over a value of `kind`. Raises `Damaged`."""
        if depth > DEPTH_MAX:
            raise Damaged("structs within structs without end")
        if kind in (_I16, _I32, _I64):
            self._varint()
        elif kind in (_BYTE, _DOUBLE, _BINARY):
            self._pass({_BYTE: 1, _DOUBLE: 8}.get(kind) or self._varint())
        elif kind in (_LIST, _SET):
            for item in self.items():
                self.skip(_BYTE if item in (_TRUE, _FALSE) else item, depth + 1)
        elif kind == _STRUCT:
            for _, field in self.fields():
                self.skip(field, depth + 1)
        elif kind not in (_TRUE, _FALSE):
            raise Damaged(f"a value of kind {kind}")

    def _value(self, kind: int, depth: int) -> Value:
        if kind in (_TRUE, _FALSE):
            return int(kind == _TRUE)
        if kind in (_I16, _I32, _I64):
            return _unzigzag(self._varint())
        if kind == _BYTE:
            return self._byte()
        if kind in (_DOUBLE, _BINARY):
            return self._take(8 if kind == _DOUBLE else self._varint())
        if kind in (_LIST, _SET):
            head = self._byte()
            count = head >> 4 if head >> 4 != 15 else self._varint()
            return [self._value(head & 0x0F, depth + 1) for _ in range(count)]
        if kind == _STRUCT:
            return self.struct(depth + 1)
        raise Damaged(f"a value of kind {kind}")

    def _byte(self) -> int:
        position = self.position
        if position >= len(self._data):
            raise Damaged("it ends in the middle of a value")
        self.position = position + 1
        return self._data[position]

    def _varint(self) -> int:
        number = shift = 0
        while (byte := self._byte()) & 0x80:
            number |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise Damaged("a number without end")
        return number | byte << shift

    def _take(self, size: int) -> bytes:
        start = self.position
        self._pass(size)
        return bytes(self._data[start : self.position])

    def _pass(self, size: int) -> None:
        if size > len(self._data) - self.position:
            raise Damaged("it ends in the middle of a value")
        self.position += size


@dataclass(frozen=True)
class I32:
    number: int


@dataclass(frozen=True)
class I64:
    number: int


@dataclass(frozen=True)
class Encoded:
    """A value of `kind` in the protocol's encoding."""

    data: bytes
    kind: int


@dataclass(frozen=True)
class Listed:
    """At least one value, all of one type."""

    values: Sequence[Written]


@dataclass(frozen=True)
class Struct:
    """Fields by number, ascending."""

    fields: Mapping[int, Written]


Written = I32 | I64 | bytes | Encoded | Listed | Struct

LIST, STRUCT = _LIST, _STRUCT


def write_struct(struct: Struct) -> bytes:
    """`struct` in the protocol's encoding."""
    out = bytearray()
    last = 0
    for number, value in struct.fields.items():
        assert 0 < number - last <= 15, "numbers ascend, in steps that fit into the short form"
        out.append((number - last) << 4 | _kind(value))
        out += _written(value)
        last = number
    out.append(0)
    return bytes(out)


def _kind(value: Written) -> int:
    if isinstance(value, Encoded):
        return value.kind
    return {I32: _I32, I64: _I64, bytes: _BINARY, Listed: _LIST, Struct: _STRUCT}[type(value)]


def _written(value: Written) -> bytes:
    if isinstance(value, I32 | I64):
        return written_number(value.number)
    if isinstance(value, bytes):
        return _varint(len(value)) + value
    if isinstance(value, Encoded):
        return value.data
    if isinstance(value, Struct):
        return write_struct(value)
    count, kind = len(value.values), _kind(value.values[0])
    head = bytes([count << 4 | kind]) if count < 15 else bytes([0xF0 | kind]) + _varint(count)
    return head + b"".join(map(_written, value.values))


def written_number(number: int) -> bytes:
    """A value of kind I16, I32 or I64."""
    return _varint(number << 1 ^ number >> 63)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _unzigzag(number: int) -> int:
    return number >> 1 ^ -(number & 1)
