"""Fetched records as an Arrow IPC stream: one copy from the broker's batches into the answer, none after it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidelog.storage.records import RECORD_SCHEMA

_OPTIONS = pa.ipc.IpcWriteOptions(use_threads=False)
_SCHEMA_MESSAGE = RECORD_SCHEMA.serialize()
_END_BYTES = 8


def encode_arrow(batches: Sequence[pa.RecordBatch]) -> memoryview:
    """The stream of `batches` (`RECORD_SCHEMA`), ended; as memory that a socket takes without a copy. Its size is
    known beforehand: a buffer that grows would be copied again and again."""
    size_bytes = _SCHEMA_MESSAGE.size + sum(pa.ipc.get_record_batch_size(batch) for batch in batches) + _END_BYTES
    answer = pa.allocate_buffer(size_bytes)
    sink = pa.FixedSizeBufferWriter(answer)
    with pa.ipc.new_stream(sink, RECORD_SCHEMA, options=_OPTIONS) as writer:
        for batch in batches:
            writer.write_batch(batch)
    assert sink.tell() == size_bytes
    return memoryview(answer).cast("B").toreadonly()
