"""Decoders of JSON, each built once.

msgspec builds what it needs to know of a class at the first use of the class. If two threads do that at the same time,
one of them decodes by a half-built description, and the process ends with a segmentation fault. So threads take their
decoders from here.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_building = threading.Lock()
_decoders: dict[tuple[Any, bool], msgspec.json.Decoder[Any]] = {}


def json_decoder(shape: type[T], *, strict: bool = True) -> msgspec.json.Decoder[T]:
    """The decoder of `shape`. `strict` as in `msgspec.json.Decoder`."""
    if found := _decoders.get((shape, strict)):
        return found
    with _building:
        if (shape, strict) not in _decoders:
            _decoders[shape, strict] = msgspec.json.Decoder(shape, strict=strict)
        return _decoders[shape, strict]
