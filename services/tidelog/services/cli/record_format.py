"""kcat's format strings: how `tidelog topic consume -f` prints a record.

%v %s value   %V %S its length (-1: null)   %R its length, 4 bytes big-endian
%k    key     %K    its length (-1: null)   %h headers as k=v,k=v
%t    topic   %p    partition               %o offset   %T timestamp, ms   %%  a percent sign

Backslashes: \\n \\r \\t \\0 \\\\ \\xHH. Keys and values go out as their bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.storage.errors import Invalid

if TYPE_CHECKING:
    from tidelog.client import Record

Part = Callable[["Record"], bytes]

VALUES_ONLY = "%v\\n"
"""The format of `topic consume` unless another is asked for."""

_TOKEN = re.compile(r"%(?P<letter>.?)|\\(?:x(?P<hex>[0-9a-fA-F]{2})|(?P<escape>.?))", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


class LineFormat:
    """A parsed format string. Raises `Invalid` for a letter or escape it does not know."""

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
        """One record's output."""
        return b"".join([part if isinstance(part, bytes) else part(record) for part in self._parts])

    def _part(self, token: re.Match[str]) -> bytes | Part:
        if token["hex"]:
            return bytes.fromhex(token["hex"])
        if token["escape"] is not None:
            if token["escape"] not in _ESCAPES:
                raise Invalid(
                    f"\\{token['escape']} is no escape of a format: \\n \\r \\t \\0 \\\\ \\xHH", field="format"
                )
            return _ESCAPES[token["escape"]]
        letter = token["letter"]
        if letter == "%":
            return b"%"
        if letter == "t":
            return self._topic
        if letter not in _LETTERS:
            raise Invalid(f"%{letter} is no field of a format: %t %p %o %k %v %T %h %K %V %R %%", field="format")
        return _LETTERS[letter]


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _headers(record: Record) -> bytes:
    return b",".join(key.encode() + b"=" + (value or b"") for key, value in record.headers)


_LETTERS: dict[str, Part] = {
    "v": lambda record: record.value or b"",
    "s": lambda record: record.value or b"",
    "V": lambda record: b"%d" % _length(record.value),
    "S": lambda record: b"%d" % _length(record.value),
    "R": lambda record: _length(record.value).to_bytes(4, "big", signed=True),
    "k": lambda record: record.key or b"",
    "K": lambda record: b"%d" % _length(record.key),
    "h": _headers,
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp_ms,
}
