"""A fetch answers as Arrow with the records' own memory if it returns most of it, and with a copy if it returns
little."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from starlette.responses import Response
from starlette.types import Message

from tidelog.services.http.answers.arrow_answer import (
    ARROW_CODECS,
    INLINE_COMPRESSED_BYTES_MAX,
    SHARED_BYTES_MIN,
    ArrowAnswer,
    arrow_answer,
    encode_arrow,
)
from tidelog.storage.records import RECORD_SCHEMA

MEDIA = "application/vnd.apache.arrow.stream"
ROWS = 4_000
VALUE = b"v" * 1_000


def batch_of(rows: int, first: int = 0) -> pa.RecordBatch:
    headers = [None if row % 3 else [{"key": "k", "value": b"h%d" % row}] for row in range(rows)]
    columns = {
        "offset": range(first, first + rows),
        "timestamp": [1_700_000_000_000 + row for row in range(rows)],
        "key": [None if row % 5 else b"key-%d" % row for row in range(rows)],
        "value": [None if row % 7 == 3 else VALUE for row in range(rows)],
        "headers": headers,
    }
    arrays = [pa.array(columns[field.name], field.type) for field in RECORD_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA)


def read(pieces: Sequence[memoryview]) -> pa.Table:
    with pa.ipc.open_stream(b"".join(pieces)) as stream:
        assert stream.schema.equals(RECORD_SCHEMA)
        return stream.read_all()


@pytest.mark.parametrize(
    "batches",
    [
        [],
        [batch_of(1)],
        [batch_of(ROWS)],
        [batch_of(ROWS).slice(5, ROWS - 17)],
        [batch_of(ROWS), batch_of(ROWS, ROWS)],
        [batch_of(ROWS).slice(1_001, 2)],
    ],
    ids=["none", "one record", "many", "a slice", "two batches", "little of much"],
)
def test_the_pieces_are_the_stream_of_the_batches(batches: list[pa.RecordBatch]) -> None:
    pieces = encode_arrow(batches)
    records = read(pieces)
    records.validate(full=True)
    assert records.equals(pa.Table.from_batches(batches, RECORD_SCHEMA))
    plain = pa.BufferOutputStream()
    with pa.ipc.new_stream(plain, RECORD_SCHEMA) as writer:
        for batch in batches:
            writer.write_batch(batch)
    assert b"".join(pieces) == plain.getvalue().to_pybytes(), "the same bytes as Arrow's own"


def test_a_large_answer_is_the_records_own_memory() -> None:
    batch = batch_of(ROWS)
    before = pa.total_allocated_bytes()
    pieces = encode_arrow([batch])
    assert sum(piece.nbytes for piece in pieces) > batch.nbytes
    assert pa.total_allocated_bytes() - before < batch.nbytes // 20
    addresses = {pa.py_buffer(piece).address for piece in pieces}
    values = batch.column("value").buffers()[2]
    assert values is not None
    assert values.address in addresses


def test_little_of_much_does_not_keep_all_of_it_alive() -> None:
    rows = SHARED_BYTES_MIN // len(VALUE) * 3 // 2
    batch = batch_of(3 * rows)
    whole_bytes = batch.nbytes
    [piece] = encode_arrow([batch.slice(10, rows)])
    assert SHARED_BYTES_MIN < piece.nbytes < whole_bytes // 2, "large, but not most of the memory it comes from"
    before = pa.total_allocated_bytes()
    del batch
    assert before - pa.total_allocated_bytes() >= whole_bytes * 9 // 10
    assert read([piece]).num_rows == rows


async def sent_by(answer: Response) -> Sequence[Message]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("an answer reads nothing")

    await answer({"type": "http"}, receive, send)
    return sent


@pytest.mark.parametrize("codec", ARROW_CODECS)
@pytest.mark.parametrize("rows", [50, ROWS])  # compressed on the event loop, and in a thread
async def test_a_named_codec_compresses_every_buffer(codec: str, rows: int) -> None:
    batches = [batch_of(rows), batch_of(rows, rows).slice(3, rows - 5)]
    assert (sum(batch.nbytes for batch in batches) > INLINE_COMPRESSED_BYTES_MAX) is (rows == ROWS)
    _, *bodies = await sent_by(await arrow_answer(batches, {}, MEDIA, codec))
    body = b"".join(message["body"] for message in bodies)
    assert len(body) < sum(batch.nbytes for batch in batches) / 4
    assert read([memoryview(body)]).equals(pa.Table.from_batches(batches))


async def test_without_a_codec_and_for_a_tiny_answer_nothing_is_compressed() -> None:
    for batches, codec in (([batch_of(ROWS)], None), ([batch_of(1).slice(0, 0)], "zstd")):
        _, *bodies = await sent_by(await arrow_answer(batches, {}, MEDIA, codec))
        assert b"".join(message["body"] for message in bodies) == b"".join(encode_arrow(batches))


async def test_an_answer_tells_its_length_and_ends() -> None:
    batches = [batch_of(ROWS), batch_of(1, ROWS)]
    answer = ArrowAnswer(encode_arrow(batches), {"Tidelog-Next-Offset": "7"}, MEDIA)
    head, *bodies = await sent_by(answer)
    body = b"".join(message["body"] for message in bodies)
    headers = dict(head["headers"])
    assert headers[b"content-length"] == str(len(body)).encode()
    assert headers[b"tidelog-next-offset"] == b"7"
    assert headers[b"content-type"] == b"application/vnd.apache.arrow.stream"
    assert [message["more_body"] for message in bodies] == [True] * (len(bodies) - 1) + [False]
    assert len(bodies) > 1
    assert read([memoryview(body)]).num_rows == ROWS + 1
