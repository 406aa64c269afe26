"""Fetched records as an Arrow IPC stream: one copy from the broker's batches into the answer, none after it."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tidelog.storage.records import RECORD_SCHEMA

_OPTIONS = pa.ipc.IpcWriteOptions(use_threads=False)


def encode_arrow(batches: Iterable[pa.RecordBatch]) -> memoryview:
    """The stream of `batches` (`RECORD_SCHEMA`), ended; as memory that a socket takes without a copy."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, RECORD_SCHEMA, options=_OPTIONS) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return memoryview(sink.getvalue()).cast("B")
