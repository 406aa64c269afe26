"""The part of Thrift's compact protocol that Parquet's page headers and footers need.

A struct is read field by field; the caller reads the values that it needs and skips the others. `numbers` finds those
at given places. A struct to be written is a `Struct` whose values carry their types, which the protocol needs for
lists; a value that was read from another struct is written as its `Encoded` bytes. Source: the Thrift project's
``thrift-compact-protocol.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
DEPTH_MAX = 8
NUMBER_BYTES_MAX = 10
_TRUNCATED, _ENDLESS = "it ends in the middle of a value", "a number without end"


class Damaged(ValueError):
    """The bytes do not follow the protocol."""


Places: TypeAlias = "Mapping[int, Places | None]"
"""Fields of a struct by number. None: a number; otherwise a struct, or a list of structs, and the fields in it."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number at bytes ``[start, end)``. `path`: the field numbers that lead to it."""

    path: tuple[int, ...]
    value: int
    start: int
    end: int


class StructReader:
    """Reads structs one after another from `data`, beginning at `position`."""

    def __init__(self, data: memoryview, position: int = 0) -> None:
        self._data = data
        self.position = position

    def numbers(self, places: Places, path: tuple[int, ...] = ()) -> Iterator[Number]:
        """The numbers at `places` of the next struct, which is read to its end. Raises `Damaged`."""
        for number, kind in self.fields():
            start, within = self.position, places.get(number, {})
            if number not in places:
                self.skip(kind)
            elif within is None:
                yield Number((*path, number), self.number(kind), start, self.position)
            else:
                for _ in self.items() if kind == _LIST else (kind,):
                    yield from self.numbers(within, (*path, number))

    def fields(self) -> Iterator[tuple[int, int]]:
        """The number and kind of each field of the next struct. The caller reads or skips each value before it asks for
        the next field. Raises `Damaged`."""
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else _unzigzag(self._varint())
            yield number, head & 0x0F

    def number(self, kind: int) -> int:
        """The value of a field of `kind`. Raises `Damaged` if it is no integer."""
        if kind not in (_I16, _I32, _I64):
            raise Damaged(f"a value of kind {kind} where a number belongs")
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

    def skip(self, kind: int) -> None:
        """Pass over a value of `kind`. Raises `Damaged`."""
        try:
            self.position = _end_of(self._data, self.position, kind)
        except IndexError:
            raise Damaged(_TRUNCATED) from None

    def _byte(self) -> int:
        position = self.position
        if position >= len(self._data):
            raise Damaged(_TRUNCATED)
        self.position = position + 1
        return self._data[position]

    def _varint(self) -> int:
        number = shift = 0
        while (byte := self._byte()) & 0x80:
            number |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise Damaged(_ENDLESS)
        return number | byte << shift


def _end_of(data: memoryview, at: int, kind: int, depth: int = 0) -> int:
    """The position after the value of `kind` at `at`. Raises `Damaged`, or `IndexError` where the data ends. A copy of
    row groups passes over thousands of values, so it makes no object of each."""
    if depth > DEPTH_MAX:
        raise Damaged("structs within structs without end")
    if kind == _STRUCT:
        while head := data[at]:
            at = _end_of(data, at + 1 if head >> 4 else _end_of_number(data, at + 1), head & 0x0F, depth + 1)
        return at + 1
    if kind in (_I16, _I32, _I64):
        return _end_of_number(data, at)
    if kind in (_TRUE, _FALSE):
        return at
    if kind == _BINARY:
        return _within(data, _end_of_number(data, at) + _number_at(data, at))
    if kind in (_BYTE, _DOUBLE):
        return _within(data, at + (1 if kind == _BYTE else 8))
    if kind in (_LIST, _SET):
        return _end_of_list(data, at, depth)
    raise Damaged(f"a value of kind {kind}")


def _end_of_list(data: memoryview, at: int, depth: int) -> int:
    head, end = data[at], at + 1
    if head >> 4 == 15:
        end = _end_of_number(data, at + 1)
    item = _BYTE if head & 0x0F in (_TRUE, _FALSE) else head & 0x0F
    for _ in range(head >> 4 if head >> 4 != 15 else _number_at(data, at + 1)):
        end = _end_of(data, end, item, depth + 1)
    return end


def _end_of_number(data: memoryview, at: int) -> int:
    for end in range(at, at + NUMBER_BYTES_MAX):
        if data[end] < 0x80:
            return end + 1
    raise Damaged(_ENDLESS)


def _number_at(data: memoryview, at: int) -> int:
    number = shift = 0
    while (byte := data[at]) >= 0x80:
        number |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    return number | byte << shift


def _within(data: memoryview, end: int) -> int:
    if end > len(data):
        raise Damaged(_TRUNCATED)
    return end


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
