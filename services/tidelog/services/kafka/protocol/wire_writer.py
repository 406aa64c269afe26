"""Writes an answer field by field where record data must not be copied. kio writes all other answers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache

from tidelog.services.kafka.protocol.api import Buffer

FORMATS_MAX = 256


class WireWriter:
    """Collects the buffers of a message. `is_flexible`: lengths are varints and tagged fields follow each
    structure (KIP-482)."""

    def __init__(self, *, is_flexible: bool) -> None:
        self._is_flexible = is_flexible
        self._written = bytearray()
        self._buffers: list[Buffer] = []

    def numbers(self, format_: str, *values: int) -> None:
        """`values` by `format_`, for example ``hq``: int8 ``b``, int16 ``h``, int32 ``i``, int64 ``q``."""
        self._written += _packing(format_).pack(*values)

    def string(self, text: str) -> None:
        data = text.encode()
        if self._is_flexible:
            self._varint(len(data) + 1)
        else:
            self.numbers("h", len(data))
        self._written += data

    def nullable_string(self, text: str | None) -> None:
        if text is not None:
            self.string(text)
        elif self._is_flexible:
            self._varint(0)
        else:
            self.numbers("h", -1)

    def array(self, count: int) -> None:
        """Begin an array of `count` elements."""
        if self._is_flexible:
            self._varint(count + 1)
        else:
            self.numbers("i", count)

    def data(self, buffers: Sequence[Buffer]) -> None:
        """Bytes that consist of `buffers`, which are not copied."""
        self.array(sum(len(each) for each in buffers))  # the length of bytes is written like that of an array
        self._buffers += [self._written, *buffers]
        self._written = bytearray()

    def no_tags(self) -> None:
        """End a structure without tagged fields, if the message is flexible."""
        if self._is_flexible:
            self._written.append(0)

    def buffers(self) -> Sequence[Buffer]:
        """The whole message."""
        return [each for each in (*self._buffers, self._written) if len(each)]

    def _varint(self, value: int) -> None:
        while value >= 0x80:
            self._written.append(value & 0x7F | 0x80)
            value >>= 7
        self._written.append(value)


@lru_cache(FORMATS_MAX)
def _packing(format_: str) -> struct.Struct:
    return struct.Struct(">" + format_)
