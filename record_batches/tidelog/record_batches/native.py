"""Calls `records.c`. The calls release the GIL, so batches of several requests are decoded side by side.

The library is compiled when Tidelog is installed (`build_steps/native_library.py`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char, c_int32, c_int64, c_void_p
from pathlib import Path
from typing import Any

LIBRARY = Path(__file__).with_name("_records.so")

FAULTS = {
    1: "it is cut off",
    2: "a length in it is wrong",
    3: "a variable-length number in it is too long",
    4: "bytes follow the last record",
    5: "its timestamp is beyond 64 bits",
    6: "the key of a header is not UTF-8",
    7: "keys, values or headers of the batch are more than 2 GiB",
}
"""`enum fault`: what is wrong with a record."""


class Totals(ctypes.Structure):
    """`struct totals`: what the columns of a batch need."""

    _fields_ = [
        *((name, c_int64) for name in ("key_bytes", "value_bytes", "headers", "header_key_bytes")),
        *((name, c_int64) for name in ("header_value_bytes", "bad_record")),
        *((name, c_int32) for name in ("null_keys", "null_values", "null_header_values", "dense")),
    ]
    key_bytes: int
    value_bytes: int
    headers: int
    header_key_bytes: int
    header_value_bytes: int
    bad_record: int
    null_keys: int
    null_values: int
    null_header_values: int
    dense: int


class Columns(ctypes.Structure):
    """`struct columns`: the addresses of the arrays to fill."""

    _fields_ = [
        (name, c_void_p)
        for name in (
            *("timestamps", "offset_deltas", "key_ends", "keys", "key_validity", "value_ends", "values"),
            *("value_validity", "header_ends", "header_key_ends", "header_keys", "header_value_ends"),
            *("header_values", "header_value_validity"),
        )
    ]


class Binary(ctypes.Structure):
    """`struct binary`: an Arrow array of binary."""

    _fields_ = [("ends", c_void_p), ("data", c_void_p), ("validity", c_void_p), ("at", c_int64)]


class Rows(ctypes.Structure):
    """`struct rows`: the columns to encode."""

    _fields_ = [
        ("offsets", c_void_p),
        ("timestamps", c_void_p),
        ("keys", Binary),
        ("values", Binary),
        ("header_ends", c_void_p),
        ("header_keys", Binary),
        ("header_values", Binary),
    ]


class Extent(ctypes.Structure):
    """`struct extent`: how many rows fit into a batch, their bytes, and their largest timestamp."""

    _fields_ = [("rows", c_int64), ("bytes", c_int64), ("timestamp_max", c_int64)]
    rows: int
    bytes: int
    timestamp_max: int


def _loaded() -> ctypes.CDLL:
    if not LIBRARY.exists():
        raise ImportError(
            f"{LIBRARY} is missing. Install Tidelog again: `make demo`, `make test` or `pip install -e .`"
        )
    library = ctypes.CDLL(str(LIBRARY))
    arguments: dict[str, Sequence[Any]] = {
        "measure_records": (c_void_p, c_int64, c_int32, c_int64, POINTER(Totals)),
        "decode_records": (c_void_p, c_int64, c_int32, c_int64, POINTER(Columns)),
        "measure_rows": (POINTER(Rows), c_int64, c_int64, c_int64, POINTER(Extent)),
        "encode_rows": (POINTER(Rows), c_int64, c_int64, c_void_p),
    }
    for name, types in arguments.items():
        function = getattr(library, name)
        function.argtypes, function.restype = types, None
    library.measure_records.restype = c_int32
    return library


_LIBRARY = _loaded()


def source_digest() -> str:
    """The SHA-256 of the `records.c` that the library was compiled from."""
    return (c_char * 64).in_dll(_LIBRARY, "source_digest").value.decode()


def measure_records(address: int, size: int, count: int, base_timestamp: int) -> tuple[int, Totals]:
    """The fault (0: none; `FAULTS`) and the totals of `count` records in the `size` bytes at `address`."""
    totals = Totals()
    fault = _LIBRARY.measure_records(address, size, count, base_timestamp, byref(totals))
    return fault, totals


def decode_records(address: int, size: int, count: int, base_timestamp: int, columns: Columns) -> None:
    """Fill `columns`, after `measure_records` found no fault."""
    _LIBRARY.decode_records(address, size, count, base_timestamp, byref(columns))


def measure_rows(rows: Rows, base: int, end: int, bytes_max: int) -> Extent:
    """How many of the rows from `base` on fit into `bytes_max`: one at least."""
    extent = Extent()
    _LIBRARY.measure_rows(byref(rows), base, end, bytes_max, byref(extent))
    return extent


def encode_rows(rows: Rows, base: int, count: int, address: int) -> None:
    """Write `count` rows to `address`, which has the bytes that `measure_rows` found."""
    _LIBRARY.encode_rows(byref(rows), base, count, address)
