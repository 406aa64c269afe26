"""The functions of `records.c` on guarded memory, and the same results made from the reference's records."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

from tests.record_batches.guarded_memory import GuardedMemory
from tests.record_batches.reference import Record

from tidelog.record_batches import native

BYTES_MAX = 1 << 16
NAMES = [field[0] for field in native.Columns._fields_]

Expected = dict[str, bytes]


def expected_columns(records: Sequence[Record]) -> Expected:
    """The bytes of `struct columns` for `records`."""
    headers = [header for record in records for header in record.headers]
    found = {
        "timestamps": struct.pack(f"<{len(records)}q", *(record.timestamp for record in records)),
        "offset_deltas": struct.pack(f"<{len(records)}i", *(record.offset_delta for record in records)),
        "header_ends": _ends([len(record.headers) for record in records]),
    }
    _add(found, "key", [record.key for record in records])
    _add(found, "value", [record.value for record in records])
    _add(found, "header_key", [key.encode() for key, _ in headers])
    _add(found, "header_value", [value for _, value in headers])
    return found


def _add(found: Expected, name: str, values: Sequence[bytes | None]) -> None:
    found[f"{name}_ends"] = _ends([len(value or b"") for value in values])
    found[f"{name}s"] = b"".join([value or b"" for value in values])
    if name != "header_key":
        bits = sum(1 << row for row, value in enumerate(values) if value is not None)
        found[f"{name}_validity"] = bits.to_bytes((len(values) + 7) // 8, "little")


def _ends(sizes: Sequence[int]) -> bytes:
    ends, end = [0], 0
    for size in sizes:
        end += size
        ends.append(end)
    return struct.pack(f"<{len(ends)}i", *ends)


class GuardedCodec:
    """Each buffer of a call in a room of its own."""

    def __init__(self) -> None:
        self._input = GuardedMemory(BYTES_MAX)
        self._output = {name: GuardedMemory(BYTES_MAX) for name in NAMES}
        self._offsets, self._encoded = GuardedMemory(BYTES_MAX), GuardedMemory(BYTES_MAX)

    def measure(self, data: bytes, count: int, base: int, *, at_end: bool) -> tuple[int, native.Totals]:
        """The fault and the totals of the records in `data`."""
        self._address, self._call = self._input.place(data, at_end=at_end), (len(data), count, base)
        return native.measure_records(self._address, *self._call)

    def decode(self, sizes: Expected, *, at_end: bool) -> Expected:
        """Decode the records that were measured, into columns of exactly the `sizes` of these."""
        rooms = {name: self._output[name].room(len(sizes[name]), at_end=at_end) for name in NAMES}
        self._rooms = rooms
        native.decode_records(self._address, *self._call, native.Columns(**rooms))
        return {name: ctypes.string_at(rooms[name], len(sizes[name])) for name in NAMES}

    def encode(self, offsets: Sequence[int], *, at_end: bool) -> tuple[bytes, native.Extent]:
        """Encode the columns that were decoded, with these offsets, into a buffer of exactly the measured bytes."""
        rows = self._rows(self._offsets.place(struct.pack(f"<{len(offsets)}q", *offsets), at_end=at_end))
        extent = native.measure_rows(rows, 0, len(offsets), BYTES_MAX)
        address = self._encoded.room(extent.bytes, at_end=at_end)
        native.encode_rows(rows, 0, extent.rows, address)
        return ctypes.string_at(address, extent.bytes), extent

    def _rows(self, offsets: int) -> native.Rows:
        rooms = self._rooms
        binary: dict[str, Any] = {
            f"{name}s": native.Binary(
                ends=rooms[f"{name}_ends"], data=rooms[f"{name}s"], validity=rooms.get(f"{name}_validity", 0), at=0
            )
            for name in ("key", "value", "header_key", "header_value")
        }
        return native.Rows(offsets=offsets, timestamps=rooms["timestamps"], header_ends=rooms["header_ends"], **binary)
