"""How `tidelog topic consume` prints records: values, JSON, or kcat's format strings.

%v %s value   %V %S its length (-1: null)   %R its length, 4 bytes big-endian
%k    key     %K    its length (-1: null)   %h headers as k=v,k=v
%t    topic   %p    partition               %o offset   %T timestamp, ms   %%  a percent sign

Backslashes: \\n \\r \\t \\0 \\\\ \\xHH. Keys and values are printed as their bytes.

Values alone are the usual case: Arrow joins them without a Python object per record.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from tidelog.storage.errors import Invalid
from tidelog.wire.records import Base64, JsonHeader, JsonPayload

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.client import Batch, Record

Render = Callable[["Batch"], bytes | memoryview]
Part = Callable[["Record"], bytes]

VALUES_ONLY = "%v\\n"
"""The default format of `topic consume`."""

_TOKEN = re.compile(r"%(?P<letter>.?)|\\(?:x(?P<hex>[0-9a-fA-F]{2})|(?P<escape>.?))", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


def renderer(topic: str, line_format: str, *, as_json: bool) -> Render:
    """A function that turns a batch into output. Raises `Invalid` for a format with an unknown letter or escape."""
    from tidelog.client.consumed import records_of

    if as_json:
        return lambda batch: b"".join(_json_line(topic, record) for record in records_of(batch))
    if line_format == VALUES_ONLY:
        return _values
    parsed = LineFormat(line_format, topic)
    return lambda batch: b"".join(map(parsed.render, records_of(batch)))


class LineFormat:
    """A parsed format string. Raises `Invalid` for an unknown letter or escape."""

    def __init__(self, text: str, topic: str) -> None:
        self._topic = topic.encode()
        self._parts: list[bytes | Part] = []
        end = 0
        for token in _TOKEN.finditer(text):
            self._parts.append(text[end : token.start()].encode("utf-8", "surrogateescape"))
            self._parts.append(self._part(token))
            end = token.end()
        self._parts.append(text[end:].encode("utf-8", "surrogateescape"))

    def render(self, record: Record) -> bytes:
        """The output for one record."""
        return b"".join([part if isinstance(part, bytes) else part(record) for part in self._parts])

    def _part(self, token: re.Match[str]) -> bytes | Part:
        if token["hex"]:
            return bytes.fromhex(token["hex"])
        if (escape := token["escape"]) is not None:
            if escape not in _ESCAPES:
                raise Invalid(f"\\{escape} is not an escape of a format: \\n \\r \\t \\0 \\\\ \\xHH", field="format")
            return _ESCAPES[escape]
        letter = token["letter"]
        if letter == "%":
            return b"%"
        if letter == "t":
            return self._topic
        if letter not in _LETTERS:
            raise Invalid(f"%{letter} is not a field of a format: %t %p %o %k %v %T %h %K %V %R %%", field="format")
        return _LETTERS[letter]


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


_LETTERS: dict[str, Part] = {
    "v": lambda record: record.value or b"",
    "s": lambda record: record.value or b"",
    "V": lambda record: b"%d" % _length(record.value),
    "S": lambda record: b"%d" % _length(record.value),
    "R": lambda record: _length(record.value).to_bytes(4, "big", signed=True),
    "k": lambda record: record.key or b"",
    "K": lambda record: b"%d" % _length(record.key),
    "h": lambda record: b",".join(key.encode() + b"=" + (value or b"") for key, value in record.headers),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp_ms,
}


def _values(batch: Batch) -> bytes:
    """Each value and a newline. A null value is an empty line."""
    return b"".join(joined_lines(chunk) for chunk in batch.records.column("value").chunks)


def joined_lines(values: pa.Array[Any]) -> memoryview | bytes:
    """The values (binary), with a newline after each. A null is an empty line."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(values):
        return b""
    newline, nothing = pa.scalar(b"\n", pa.binary()), pa.scalar(b"", pa.binary())
    joined = cast(Any, pc).binary_join_element_wise(
        values, nothing, newline, null_handling="replace", null_replacement=""
    )
    _, offsets, data = joined.buffers()
    ends = memoryview(offsets).cast("i")
    return memoryview(data)[ends[joined.offset] : ends[joined.offset + len(joined)]]


def _json_line(topic: str, record: Record) -> bytes:
    line = {
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": _payload(record.key),
        "value": _payload(record.value),
        "headers": [JsonHeader(key, _payload(value)) for key, value in record.headers],
    }
    return msgspec.json.encode(line) + b"\n"


def _payload(data: bytes | None) -> JsonPayload:
    """`data` as in the HTTP interface."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return Base64(base64.b64encode(data).decode())
