"""Reads the sizes that an Arrow IPC stream claims, before Arrow decodes it.

Arrow's reader allocates the sizes that a batch's compressed buffers claim, and 2.5 KB can claim 67 MB. So this small
reader walks the frames first. A message is a length, a flatbuffer and a body. Only the needed fields of the flatbuffer
are read, and each access is checked against the bounds of the message.
Formats: https://arrow.apache.org/docs/format/Columnar.html (encapsulated messages), ``format/Message.fbs``,
``format/Schema.fbs`` and https://flatbuffers.dev/internals/.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tidelog.storage.object_store import Body
from tidelog.wire.errors import Unreadable

_CONTINUATION = 0xFFFFFFFF
_SCHEMA_HEADER = 1
_RECORD_BATCH_HEADER = 3
_BUFFER_BYTES = 16
_UNCOMPRESSED = -1


@dataclass(frozen=True)
class StreamClaims:
    """The totals over all batches of a stream, as its frames claim them."""

    batches: int
    records: int
    expanded_bytes: int


class _Table:
    """A flatbuffer table at `position` in `message`. Slots are numbered like the fields of its schema."""

    def __init__(self, message: Body, position: int) -> None:
        self._message = message
        self._position = position
        vtable = position - self._int("<i", position)
        self._slots = [self._int("<H", vtable + 4 + 2 * slot) for slot in range((self._int("<H", vtable) - 4) // 2)]
        self._message_bytes = len(message)

    @classmethod
    def root(cls, message: Body) -> _Table:
        return cls(message, struct.unpack_from("<I", message, 0)[0])

    def _int(self, kind: str, position: int) -> int:
        if position < 0:
            raise struct.error("an offset points before the message")
        number: int = struct.unpack_from(kind, self._message, position)[0]
        return number

    def _place(self, slot: int) -> int | None:
        offset = self._slots[slot] if slot < len(self._slots) else 0
        return self._position + offset if offset else None

    def number(self, slot: int, kind: str) -> int:
        place = self._place(slot)
        return 0 if place is None else self._int(kind, place)

    def table(self, slot: int) -> _Table | None:
        place = self._place(slot)
        return None if place is None else _Table(self._message, place + self._int("<I", place))

    def structs(self, slot: int, struct_bytes: int) -> tuple[int, int]:
        """The position and the number of structs of a vector, which lies within the message."""
        place = self._place(slot)
        if place is None:
            return 0, 0
        vector = place + self._int("<I", place)
        count = self._int("<I", vector)
        if vector + 4 + count * struct_bytes > self._message_bytes:
            raise struct.error("a vector reaches past the message")
        return vector + 4, count

    def pair(self, position: int) -> tuple[int, int]:
        """The two int64 fields of a struct."""
        return self._int("<q", position), self._int("<q", position + 8)


def read_claims(stream: Body) -> StreamClaims:
    """Walk the frames of `stream`: one schema, then batches, then the end.

    Raises `Unreadable` for anything else: other messages (dictionaries, tensors), big-endian data, lengths that do not
    fit, a buffer outside its body, bytes after the end."""
    if not stream:
        raise Unreadable("the body is empty: send an Arrow IPC stream")
    try:
        return _walk(stream)
    except struct.error as error:
        raise Unreadable(f"the body is not a complete Arrow IPC stream: {error}") from None


def _walk(stream: Body) -> StreamClaims:
    position, messages, records, expanded_bytes = 0, 0, 0, 0
    while position < len(stream):
        continuation, metadata_bytes = struct.unpack_from("<Ii", stream, position)
        if continuation != _CONTINUATION or metadata_bytes < 0 or metadata_bytes % 8:
            raise Unreadable(f"the body is not an Arrow IPC stream: no message begins at byte {position}")
        position += 8
        if not metadata_bytes:
            break
        metadata = memoryview(stream)[position : position + metadata_bytes]
        message = _Table.root(metadata)
        body_start, body_bytes = position + metadata_bytes, message.number(3, "<q")
        if body_bytes < 0 or body_bytes % 8 or body_start + body_bytes > len(stream):
            raise Unreadable(f"the Arrow IPC stream is cut off: message {messages} is incomplete")
        header = _expected_header(message, messages)
        if messages:
            records += header.number(0, "<q")
            expanded_bytes += _expanded_bytes(header, memoryview(stream)[body_start : body_start + body_bytes])
        position = body_start + body_bytes
        messages += 1
    if position != len(stream):
        raise Unreadable(f"{len(stream) - position} bytes follow the end of the Arrow IPC stream")
    if not messages:
        raise Unreadable("the Arrow IPC stream has no schema")
    return StreamClaims(messages - 1, records, expanded_bytes)


def _expected_header(message: _Table, number: int) -> _Table:
    """The header of message `number`: the first is a schema, every other one a batch."""
    kind, header = message.number(1, "<B"), message.table(2)
    if header is None or kind != (_RECORD_BATCH_HEADER if number else _SCHEMA_HEADER):
        raise Unreadable(
            f"message {number} of the Arrow IPC stream is of kind {kind}: send a schema, then record batches without "
            "dictionaries"
        )
    if not number and header.number(0, "<h"):
        raise Unreadable("the Arrow IPC stream is big-endian: send little-endian data")
    if number and header.number(0, "<q") < 0:
        raise Unreadable(f"message {number} of the Arrow IPC stream holds a negative number of records")
    return header


def _expanded_bytes(batch: _Table, body: memoryview) -> int:
    """The size of a batch's buffers after decompression."""
    first, count = batch.structs(2, _BUFFER_BYTES)
    compressed = batch.table(3) is not None
    total = 0
    for position in range(first, first + count * _BUFFER_BYTES, _BUFFER_BYTES):
        offset, length = batch.pair(position)
        if offset < 0 or length < 0 or offset + length > len(body):
            raise Unreadable("a buffer of the Arrow IPC stream is outside its message")
        claim = struct.unpack_from("<q", body, offset)[0] if compressed and length else length
        if claim < _UNCOMPRESSED:
            raise Unreadable("a buffer of the Arrow IPC stream claims a negative length")
        total += length - 8 if claim == _UNCOMPRESSED else claim
    return total
