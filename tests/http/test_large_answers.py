"""Answers of many records as text are written and sent in pieces."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace

import httpx
import pyarrow as pa
import pytest
from tests.attempts import attempts
from tests.http.conftest import SETTINGS, Served
from tests.http.requests import ARROW, JSON, NDJSON, arrow_stream, values_table
from tests.http.sockets import connected, happens, head
from tests.loop_stalls import watched_loop

from tidelog.services.broker.api.fetch import Fetched
from tidelog.services.http.answers import text_answer as answers
from tidelog.services.http.answers.record_json import JsonText, RecordDocument, RecordLines
from tidelog.services.http.answers.record_slices import SLICE_BYTES_MAX, SLICE_RECORDS_MAX, groups_of, slices_of
from tidelog.services.http.answers.text_answer import text_answer
from tidelog.services.settings.settings import Settings
from tidelog.storage.records import RECORD_SCHEMA

COUNT = 60_000
P0 = "/v1/topics/web/partitions/0/records"
HELD_S_MAX = 0.05
"""CPU time of one turn of the event loop."""


@pytest.fixture
def settings() -> Settings:
    return replace(SETTINGS, request_max_records=COUNT, request_max_bytes=8 << 20)


@pytest.fixture
async def many(live: httpx.AsyncClient) -> httpx.AsyncClient:
    body = arrow_stream(values_table([b'"%d"' % number for number in range(COUNT)]))
    await live.post("/v1/topics", json={"name": "web", "partitions": 1})
    answer = await live.post(P0, content=body, headers={"content-type": ARROW})
    assert answer.status_code == 200, answer.text
    return live


@pytest.mark.parametrize("media", [JSON, NDJSON])
async def test_tens_of_thousands_of_records_do_not_hold_the_loop(many: httpx.AsyncClient, media: str) -> None:
    path = f"{P0}?max_records={COUNT}&max_bytes=8000000"
    for attempt in attempts():
        with attempt:
            async with watched_loop(HELD_S_MAX):
                answer = await many.get(path, headers={"accept": media}, timeout=60)
    whole = answer.json() if media == JSON else {"records": [json.loads(line) for line in answer.text.splitlines()]}
    assert [record["value"] for record in whole["records"]] == [f'"{number}"' for number in range(COUNT)]
    assert answer.headers["tidelog-next-offset"] == str(COUNT)
    if media == JSON:
        assert {name: whole[name] for name in whole if name != "records"} == {
            "topic": "web", "partition": 0, "next_offset": COUNT, "high_watermark": COUNT, "log_start_offset": 0,
        }  # fmt: skip


async def test_a_small_answer_tells_its_length(many: httpx.AsyncClient) -> None:
    for media in (JSON, NDJSON):
        answer = await many.get(f"{P0}?max_records={SLICE_RECORDS_MAX}", headers={"accept": media})
        assert int(answer.headers["content-length"]) == len(answer.content)


async def test_an_answer_whose_client_leaves_is_written_no_further(
    many: httpx.AsyncClient, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, write = [], RecordLines.records

    def counted(text: RecordLines, group: Sequence[pa.RecordBatch]) -> bytes:
        written.append(len(group))
        return write(text, group) * 40  # more than the sockets can buffer

    monkeypatch.setattr(RecordLines, "records", counted)
    async with connected(served) as wire:
        await wire.send(head("GET", f"{P0}?max_records={COUNT}&max_bytes=8000000", accept=NDJSON))
        await wire.until(b"\r\n\r\n")
    await happens(lambda: not served.server.server_state.tasks)
    assert len(written) < COUNT / SLICE_RECORDS_MAX


def batch(first: int, count: int, value: bytes) -> pa.RecordBatch:
    columns = {
        "offset": pa.array(range(first, first + count), pa.int64()),
        "timestamp": pa.array([0] * count, RECORD_SCHEMA.field("timestamp").type),
        "key": pa.nulls(count, pa.binary()),
        "value": pa.array([value] * count, pa.binary()),
        "headers": pa.nulls(count, RECORD_SCHEMA.field("headers").type),
    }
    return pa.record_batch([columns[name] for name in RECORD_SCHEMA.names], schema=RECORD_SCHEMA)


def test_slices_and_groups_are_within_their_bounds_and_hold_all() -> None:
    batches = [batch(0, 3, b"x"), batch(3, 0, b""), batch(3, 2_500, b"y"), batch(2_503, 4, b"z" * SLICE_BYTES_MAX)]
    for pieces in ([[piece] for piece in slices_of(batches)], list(groups_of(batches))):
        rows = [piece for group in pieces for piece in group]
        assert pa.Table.from_batches(rows).column("offset").to_pylist() == list(range(2_507))
        assert all(sum(piece.num_rows for piece in group) <= SLICE_RECORDS_MAX for group in pieces)
        assert all(sum(p.nbytes for p in group) <= SLICE_BYTES_MAX or len(group) == 1 for group in pieces)
    assert len(list(groups_of([batch(n, 1, b"x") for n in range(500)]))) == 1


@pytest.mark.parametrize("text", [lambda fetched: RecordDocument("t", 0, fetched), lambda _: RecordLines()])
async def test_memory_holds_the_text_of_one_group(text: Callable[[Fetched], JsonText]) -> None:
    fetched = Fetched([batch(0, 100_000, b"")], 100_000, 0, 100_000)
    answer = await text_answer(fetched.batches, text(fetched), {}, JSON)
    assert isinstance(answer, answers.GroupedAnswer)
    sent_bytes = 0

    async def receive() -> dict[str, str]:
        stays: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        return await stays

    async def send(message: dict[str, bytes]) -> None:
        nonlocal sent_bytes
        sent_bytes += len(message.get("body", b""))

    tracemalloc.start()
    await answer({}, receive, send)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sent_bytes > 6_000_000
    assert peak_bytes < 3_000_000
