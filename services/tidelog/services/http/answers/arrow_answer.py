"""Answers a fetch with an Arrow IPC stream.

The pieces of a large answer are the records' own memory, so the copy into the socket is the only one. A small answer is
copied into one piece.

A piece keeps the whole buffer that it belongs to in memory until the socket has taken it, however slow the reader is.
So the records' own memory is sent only if the answer holds most of it. Otherwise a thousand slow readers of a kilobyte
each could hold a thousand megabytes.

A client that names a codec gets compressed buffers (ADR 0026). A large page is compressed in a thread, because that
takes about a millisecond per megabyte.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping, Sequence
from typing import cast

import pyarrow as pa
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidelog.storage.part_records import PART_RECORD_SCHEMA
from tidelog.storage.records import RECORD_SCHEMA
from tidelog.wire.polls import ARROW_STATE

SHARED_BYTES_MIN = 1 << 20
"""A smaller answer is copied: that costs less than sending its pieces one by one."""
JOINED_BYTES_MAX = 1 << 14
"""Smaller pieces are joined, because each piece is a write."""
COMPRESSED_BYTES_MIN = 1 << 10
"""A smaller answer is not compressed: it would save no packet."""
INLINE_COMPRESSED_BYTES_MAX = 1 << 17
"""A larger answer is compressed in a thread."""
ANSWER_ZSTD_LEVEL = -1
"""A broker compresses for each reader, so it takes a fast level (ADR 0026)."""
ARROW_CODECS = ("zstd", "lz4")
"""The compressions of the format, by the names that a client asks for them with."""

_OPTIONS = pa.ipc.IpcWriteOptions(use_threads=False)
_CODEC_OF: Mapping[str, pa.Codec] = {"zstd": pa.Codec("zstd", ANSWER_ZSTD_LEVEL), "lz4": pa.Codec("lz4")}
_COMPRESSED = {name: pa.ipc.IpcWriteOptions(use_threads=False, compression=codec) for name, codec in _CODEC_OF.items()}
_SCHEMA_MESSAGE = RECORD_SCHEMA.serialize()
_END_BYTES = 8


async def arrow_answer(
    batches: Sequence[pa.RecordBatch], headers: Mapping[str, str], media_type: str, codec: str | None
) -> Response:
    """The answer with `batches` (`RECORD_SCHEMA`), compressed if there is a `codec` and the answer is not tiny."""
    if codec is None or sum(batch.nbytes for batch in batches) < COMPRESSED_BYTES_MIN:
        return ArrowAnswer(encode_arrow(batches), headers, media_type)
    return ArrowAnswer([await compressed(batches, RECORD_SCHEMA, codec)], headers, media_type)


async def parts_answer(batches: Sequence[pa.RecordBatch], state: bytes, media_type: str, codec: str | None) -> Response:
    """The answer with `batches` (`PART_RECORD_SCHEMA`) and `state` in the schema's metadata, compressed likewise."""
    return ArrowAnswer(await parts_stream(batches, state, codec), {}, media_type)


async def parts_stream(batches: Sequence[pa.RecordBatch], state: bytes, codec: str | None) -> Sequence[memoryview]:
    """The stream of `parts_answer`."""
    schema = PART_RECORD_SCHEMA.with_metadata({ARROW_STATE: state})
    if codec is None or sum(batch.nbytes for batch in batches) < COMPRESSED_BYTES_MIN:
        return encode_parts(batches, schema)
    return [await compressed(batches, schema, codec)]


async def compressed(batches: Sequence[pa.RecordBatch], schema: pa.Schema, codec: str) -> memoryview:
    """The complete stream of `batches` with compressed buffers."""
    if sum(batch.nbytes for batch in batches) <= INLINE_COMPRESSED_BYTES_MAX:
        return _compressed(batches, schema, codec)
    return await asyncio.to_thread(_compressed, batches, schema, codec)


def _compressed(batches: Sequence[pa.RecordBatch], schema: pa.Schema, codec: str) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=_COMPRESSED[codec]) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return memoryview(sink.getvalue()).cast("B").toreadonly()


class ArrowAnswer(Response):
    """Sends the `pieces` of a stream one by one, at the pace of the socket."""

    def __init__(self, pieces: Sequence[memoryview], headers: Mapping[str, str], media_type: str) -> None:
        self._pieces = pieces
        length = sum(piece.nbytes for piece in self._pieces)
        super().__init__(headers={**headers, "content-length": str(length)}, media_type=media_type)

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        last = len(self._pieces) - 1
        for place, piece in enumerate(self._pieces):
            await send({"type": "http.response.body", "body": piece, "more_body": place < last})


def encode_arrow(batches: Sequence[pa.RecordBatch]) -> Sequence[memoryview]:
    """The complete stream of `batches` (`RECORD_SCHEMA`): at least one piece."""
    size_bytes = _SCHEMA_MESSAGE.size + sum(pa.ipc.get_record_batch_size(batch) for batch in batches) + _END_BYTES
    if size_bytes < SHARED_BYTES_MIN or sum(batch.get_total_buffer_size() for batch in batches) > 2 * size_bytes:
        return [_copied(batches, size_bytes)]
    return _shared(batches, RECORD_SCHEMA)


def encode_parts(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> Sequence[memoryview]:
    """The complete stream of `batches`, whose `schema` may have dictionaries: at least one piece."""
    size_bytes = sum(pa.ipc.get_record_batch_size(batch) for batch in batches)
    if size_bytes >= SHARED_BYTES_MIN and sum(batch.get_total_buffer_size() for batch in batches) <= 2 * size_bytes:
        return _shared(batches, schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=_OPTIONS) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return [memoryview(sink.getvalue()).cast("B")]


def _shared(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> Sequence[memoryview]:
    """The stream in pieces, the large ones in the memory of the records."""
    sink = _Pieces()
    file_object = cast(io.IOBase, sink)  # PythonFile needs only its methods
    with (
        pa.PythonFile(file_object, mode="w") as file,
        pa.ipc.new_stream(file, schema, options=_OPTIONS) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)
    return sink.joined()


def _copied(batches: Sequence[pa.RecordBatch], size_bytes: int) -> memoryview:
    """The stream in one piece. Its size is known, so the buffer never grows, which would copy it again."""
    answer = pa.allocate_buffer(size_bytes)
    sink = pa.FixedSizeBufferWriter(answer)
    with pa.ipc.new_stream(sink, RECORD_SCHEMA, options=_OPTIONS) as writer:
        for batch in batches:
            writer.write_batch(batch)
    assert sink.tell() == size_bytes
    return memoryview(answer).cast("B").toreadonly()


class _Pieces:
    """A file that keeps what Arrow writes: references to large buffers, and copies of small pieces between them."""

    def __init__(self) -> None:
        self._pieces: list[memoryview] = []
        self._small: list[memoryview] = []
        self.closed = False

    def write(self, data: pa.Buffer | bytes) -> int:
        piece = memoryview(data).cast("B")
        if piece.nbytes > JOINED_BYTES_MAX:
            self._join()
            self._pieces.append(piece)
        else:
            self._small.append(piece)
        return piece.nbytes

    def joined(self) -> Sequence[memoryview]:
        self._join()
        return self._pieces

    def flush(self) -> None:
        """Every write is in a piece already."""

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True

    def _join(self) -> None:
        if self._small:
            self._pieces.append(memoryview(b"".join(self._small)))
            self._small = []
