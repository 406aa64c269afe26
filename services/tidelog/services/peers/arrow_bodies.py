"""Encodes shares and decodes pages of records as Arrow IPC streams, without touching single records in Python."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence

import pyarrow as pa

from tidelog.storage.errors import Corrupt
from tidelog.storage.part_records import PART_RECORD_SCHEMA, PartRecords, by_partition
from tidelog.storage.records import RECORD_SCHEMA
from tidelog.wire.polls import ARROW_STATE

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
    return _decode(body, RECORD_SCHEMA)[1]


def decode_parts(body: bytes) -> tuple[bytes, Sequence[PartRecords]]:
    """The answer to a fetch of many partitions: its state as JSON, and the records of each partition, validated. Raises
    `Corrupt`."""
    metadata, batches = _decode(body, PART_RECORD_SCHEMA)
    return metadata.get(ARROW_STATE, b""), [part for batch in batches for part in by_partition(batch)]


def _decode(body: bytes, expected: pa.Schema) -> tuple[Mapping[bytes, bytes], Sequence[pa.RecordBatch]]:
    try:
        with pa.ipc.open_stream(pa.BufferReader(body), options=pa.ipc.IpcReadOptions(use_threads=False)) as reader:
            if not reader.schema.equals(expected):
                raise Corrupt("a peer's answer", f"its records have the schema {reader.schema}")
            metadata, batches = reader.schema.metadata or {}, list(reader)
        for batch in batches:
            batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Corrupt("a peer's answer", str(error)) from error
    return metadata, batches
