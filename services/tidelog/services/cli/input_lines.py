"""A stream of bytes as records, a line each, in bounded memory: what `tidelog topic produce` reads.

The bytes before each newline are a record, all others kept; what follows the last newline, if anything, is one too.
Newlines are found by numpy, and the lines of a block become one Arrow array over the block's own bytes, so that no
Python runs per line unless a key is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, cast

import msgspec
import numpy as np
import pyarrow as pa

from tidelog.storage.errors import Invalid, TooLarge

LINE_BYTES_MAX = 64 << 20
"""Longer than any broker takes a record: the bound of what is kept while looking for a newline."""

Lines: TypeAlias = "pa.Array[Any]"
ReadBlock = Callable[[], bytes]
KeyOf = Callable[[bytes], tuple[bytes | None, bytes]]
"""A line to its key and its value."""


def line_arrays(read_block: ReadBlock) -> Iterator[Lines]:
    """Arrays of lines (binary) until `read_block` gives no more bytes. Raises `TooLarge` for an endless line."""
    started: list[bytes] = []  # the pieces of a line whose newline has not come yet
    started_bytes = 0
    while block := read_block():
        end = block.rfind(b"\n") + 1
        if not end:
            started.append(block)
            started_bytes += len(block)
            if started_bytes > LINE_BYTES_MAX:
                raise TooLarge(
                    f"a line is longer than {LINE_BYTES_MAX} bytes: is the input text?",
                    limit_name="line",
                    limit_bytes=LINE_BYTES_MAX,
                )
            continue
        yield _lines(b"".join([*started, block[:end]]))
        started = [block[end:]] if end < len(block) else []
        started_bytes = len(block) - end
    if started:
        yield pa.array([b"".join(started)], pa.binary())


def keyed_table(lines: Lines, key_of: KeyOf | None, *, required: bool = False) -> tuple[pa.Table, Invalid | None]:
    """Lines as a table with `value`, and `key` where `key_of` finds one in a line. The table ends before the first line
    that is wrong, or has no key where one is `required`; the error says why."""
    if key_of is None:
        return pa.table({"value": lines}), None
    keys: list[bytes | None] = []
    values: list[bytes] = []
    wrong = None
    for line in cast("list[bytes]", lines.to_pylist()):
        try:
            key, value = key_of(line)
        except Invalid as error:
            wrong = error
            break
        if key is None and required:
            wrong = Invalid(f"it has no key: {line[:80]!r}. Add --allow-missing-key if that is right", field="key")
            break
        keys.append(key)
        values.append(value)
    return pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}), wrong


def key_finder(text: str) -> KeyOf:
    """What ``-k`` asks for: ``json:FIELD`` (dots descend) takes the key from a JSON field and leaves the line as it is,
    anything else is a separator between key and value (``\\t`` is a tab). Raises `Invalid`."""
    if text.startswith("json:"):
        return _json_key(text.removeprefix("json:"))
    separator = text.replace("\\t", "\t").encode()
    if not separator:
        raise Invalid("the key separator is empty: say as -k : or -k json:user.id", field="key")

    def split_off(line: bytes) -> tuple[bytes | None, bytes]:
        key, found, value = line.partition(separator)
        return (key, value) if found else (None, line)

    return split_off


def _json_key(path: str) -> KeyOf:
    names = path.split(".")
    if not all(names):
        raise Invalid(f"json:{path} names no field: say as -k json:user.id", field="key")

    def take_out(line: bytes) -> tuple[bytes | None, bytes]:
        try:
            value: object = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise Invalid(f"it is not JSON ({error}): {line[:80]!r}", field="key") from error
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        if value is None:
            return None, line
        return (value.encode() if isinstance(value, str) else msgspec.json.encode(value)), line

    return take_out


def _lines(data: bytes) -> Lines:
    """The lines of `data`, which ends with a newline; each is a slice of a copy without the newlines' positions."""
    characters = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(characters == 10)
    starts = np.concatenate(([0], ends[:-1] + 1))
    kept = np.delete(characters, ends) if len(ends) else characters
    offsets = np.concatenate(([0], np.cumsum(ends - starts))).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(kept.tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(ends), buffers)
