"""Reads a message field by field where record data must not be copied. kio reads all other messages."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

from tidelog.services.kafka.protocol.api import Malformed

T = TypeVar("T")

_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
_VARINT_BYTES_MAX = 5


class WireReader:
    """A position in `data`. `is_flexible`: lengths are varints and tagged fields follow each structure (KIP-482). Every
    method raises `Malformed` where the message ends too early."""

    def __init__(self, data: memoryview, *, is_flexible: bool) -> None:
        self._data = data
        self._is_flexible = is_flexible
        self._at = 0

    def int16(self) -> int:
        return int(_INT16.unpack(self._take(_INT16.size))[0])

    def int32(self) -> int:
        return int(_INT32.unpack(self._take(_INT32.size))[0])

    def string(self) -> str:
        """A string that may not be null."""
        text = self.nullable_string()
        if text is None:
            raise Malformed("a string of the request is null")
        return text

    def nullable_string(self) -> str | None:
        length = self._varint() - 1 if self._is_flexible else self.int16()
        try:
            return None if length < 0 else str(self._take(length), "utf-8")
        except UnicodeDecodeError:
            raise Malformed("a string of the request is not UTF-8") from None

    def nullable_bytes(self) -> memoryview | None:
        """A part of `data`, not a copy."""
        length = self._length()
        return None if length < 0 else self._take(length)

    def array(self, element: Callable[[], T], bytes_min: int) -> list[T]:
        """The elements, each of which has `bytes_min` bytes at least. A null array is empty."""
        count = self._length()
        if count * bytes_min > len(self._data) - self._at:
            raise Malformed(f"an array of {count} elements does not fit into the request")
        return [element() for _ in range(count)]

    def skip_tags(self) -> None:
        """Pass over the tagged fields that end a structure, if the message is flexible."""
        for _ in range(self._varint() if self._is_flexible else 0):
            self._varint()
            self._take(self._varint())

    def check_end(self) -> None:
        """Raises `Malformed` if bytes are left."""
        if self._at != len(self._data):
            raise Malformed(f"{len(self._data) - self._at} bytes follow the request")

    def _length(self) -> int:
        return self._varint() - 1 if self._is_flexible else self.int32()

    def _take(self, size: int) -> memoryview:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise Malformed(f"a field of {size} bytes ends beyond the request")
        found, self._at = self._data[self._at : end], end
        return found

    def _varint(self) -> int:
        value = 0
        for place in range(_VARINT_BYTES_MAX):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value
        raise Malformed("a varint of the request does not end")
