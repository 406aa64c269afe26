"""Encodes shares and decodes pages of records as Arrow IPC streams, without touching single records in Python."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import pyarrow as pa

from tidelog.storage.errors import Corrupt
from tidelog.storage.records import RECORD_SCHEMA

PIECE_BYTES = 1 << 18
"""Pieces are small because a transport copies the rest of a piece if the socket takes only a part."""
_OPTIONS = pa.ipc.IpcWriteOptions(use_threads=False)


def encode_share(records: pa.Table) -> memoryview:
    """The body of a produce with `records` (`DRAFT_SCHEMA`). Columns that are null in every row are left out."""
    names = [name for name in records.column_names if name == "value" or records[name].null_count < records.num_rows]
    sent = records.select(names)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, sent.schema, options=_OPTIONS) as writer:
        writer.write_table(sent)
    return memoryview(sink.getvalue()).cast("B")


async def pieces_of(body: memoryview) -> AsyncGenerator[memoryview]:
    """`body` in pieces, without a copy."""
    for start in range(0, body.nbytes, PIECE_BYTES):
        yield body[start : start + PIECE_BYTES]


def decode_page(body: bytes) -> Sequence[pa.RecordBatch]:
    """The batches (`RECORD_SCHEMA`) of the answer to a fetch, validated. Raises `Corrupt`."""
    try:
        with pa.ipc.open_stream(pa.BufferReader(body), options=pa.ipc.IpcReadOptions(use_threads=False)) as reader:
            if not reader.schema.equals(RECORD_SCHEMA):
                raise Corrupt("a peer's answer", f"its records have the schema {reader.schema}")
            batches = list(reader)
        for batch in batches:
            batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Corrupt("a peer's answer", str(error)) from error
    return batches
