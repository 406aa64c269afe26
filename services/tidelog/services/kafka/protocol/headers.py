"""The headers of requests and answers.

A request has header 1 (key, version, correlation id, client id) or, in a flexible version, header 2, which adds tagged
fields; Tidelog skips them. An answer has header 0 (correlation id) or, in a flexible version, header 1; an answer to
ApiVersions always has header 0, because a client reads it before it knows the broker's versions (KIP-511).
https://kafka.apache.org/protocol#protocol_messages
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tidelog.services.kafka.protocol.api import Malformed
from tidelog.services.kafka.protocol.api_table import API_TABLE, API_VERSIONS, ServedApi
from tidelog.services.kafka.protocol.request_reading import read_varint

_FIXED = struct.Struct(">hhih")
_ANSWER = struct.Struct(">ii")
HEADER_BYTES_MIN = _FIXED.size


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """A request's header up to its client id, which is empty if it has none. `end`: where the tagged fields begin, or
    the body."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str
    end: int


def read_header(frame: memoryview) -> RequestHeader:
    """The header of the request in `frame`. Raises `Malformed`."""
    if len(frame) < HEADER_BYTES_MIN:
        raise Malformed(f"a request of {len(frame)} bytes is shorter than its header")
    key, version, correlation_id, length = _FIXED.unpack_from(frame)
    end = HEADER_BYTES_MIN + max(0, length)
    if length < -1 or end > len(frame):
        raise Malformed(f"the client id has {length} bytes in a request of {len(frame)}")
    try:
        return RequestHeader(key, version, correlation_id, str(frame[HEADER_BYTES_MIN:end], "utf-8"), end)
    except UnicodeDecodeError:
        raise Malformed("the client id is not UTF-8") from None


def asks_for_long_poll(frame: memoryview) -> bool:
    """Whether the request in `frame`, which may be malformed, waits until there is something to answer."""
    api = API_TABLE.get(int.from_bytes(frame[:2], "big"))
    return api is not None and api.is_long_poll


def body_of(frame: memoryview, header: RequestHeader, api: ServedApi) -> memoryview:
    """The frame after the header. Raises `Malformed`."""
    return frame[_after_tags(frame, header.end) if api.is_flexible(header.version) else header.end :]


def answer_head(api: ServedApi, version: int, correlation_id: int, body_bytes: int) -> bytes:
    """The length of an answer with a body of `body_bytes`, and its header."""
    if api.is_flexible(version) and api.key != API_VERSIONS:
        return _ANSWER.pack(body_bytes + 5, correlation_id) + b"\0"
    return _ANSWER.pack(body_bytes + 4, correlation_id)


def _after_tags(frame: memoryview, at: int) -> int:
    count, at = read_varint(frame, at)
    for _ in range(count):
        _tag, at = read_varint(frame, at)
        size, at = read_varint(frame, at)
        at += size
        if at > len(frame):
            raise Malformed("a tagged field of the header ends beyond the request")
    return at
