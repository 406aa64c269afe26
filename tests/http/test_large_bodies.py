"""Large bodies are decoded in pieces: the same records, bounded memory, and an event loop that stays free."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import tracemalloc
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import httpx
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.attempts import attempts
from tests.http.conftest import SETTINGS, Served
from tests.http.requests import JSON, NDJSON, TEXT, problem
from tests.http.test_body_reading import arriving
from tests.loop_stalls import watched_loop

from tidelog.services.http.bodies import decoding, json_body, json_pieces, line_body
from tidelog.services.http.bodies.body_reading import BodyReader
from tidelog.services.http.bodies.decoding import BodyForm, Decoding, added_bytes
from tidelog.services.http.bodies.draft_columns import HEADERS_MAX, RECORD_BYTES
from tidelog.services.http.bodies.json_body import decode_json
from tidelog.services.http.bodies.line_body import LineFields, decode_ndjson, decode_text
from tidelog.services.http.media import Media
from tidelog.services.settings.settings import Settings
from tidelog.storage.errors import Invalid, Overloaded

MIB = 1 << 20
RECORDS_MAX = 100_000
HELD_S_MAX = 0.05
"""CPU time of one turn of the event loop."""


@pytest.fixture
def settings() -> Settings:
    return replace(
        SETTINGS, request_max_bytes=32 * MIB, request_max_records=RECORDS_MAX, request_read_timeout_ms=20_000
    )


def shrink_pieces(patched: pytest.MonkeyPatch) -> None:
    """Make pieces so small that a body of a few records has many of them."""
    for module in (json_body, json_pieces, line_body):
        patched.setattr(module, "PIECE_BYTES", 48)
    patched.setattr(json_pieces, "SCAN_BYTES", 16)


@pytest.fixture
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink_pieces(monkeypatch)


# ---- the same records


def nulls(count: int) -> bytes:
    return b'{"records":[' + b'{"value":null},' * (count - 1) + b'{"value":null}]}'


NASTY = st.text(st.sampled_from('ab\\"{}[],: \n€😀'), max_size=30) | st.just('"},{"value":"x"},{"key":"y"},{')
VALUES = st.none() | NASTY | NASTY.map(lambda text: {"json": [text, {"value": text}, [{"value": 1}]]})
HEADERS = st.lists(st.builds(lambda key, value: {"key": key, "value": value}, NASTY, st.none() | NASTY), max_size=3)
RECORDS = st.lists(
    st.fixed_dictionaries(
        {"value": VALUES},
        optional={
            "key": NASTY,
            "headers": HEADERS,
            "partition": st.integers(0, 9),
            "timestamp": st.integers(0, 10**12),
        },
    ),
    min_size=1,
    max_size=30,
)


@given(RECORDS, st.sampled_from([(",", ":"), (" ,\n", " : ")]), st.booleans())
def test_a_body_in_pieces_is_the_same_records(records: list[dict], separators: tuple[str, str], plain: bool) -> None:
    body = json.dumps({"records": records}, separators=separators, ensure_ascii=plain).encode()
    whole = decode_json(body, 100)
    with pytest.MonkeyPatch.context() as patched:
        shrink_pieces(patched)
        pieces = decode_json(memoryview(body), 100)
    assert pieces.records.combine_chunks().equals(whole.records.combine_chunks())
    assert (pieces.partitions is None) == (whole.partitions is None)
    if whole.partitions is not None and pieces.partitions is not None:
        assert pieces.partitions.to_pylist() == whole.partitions.to_pylist()


@given(st.binary(max_size=300).filter(lambda body: body.strip()), st.booleans())
def test_lines_in_pieces_are_the_same_records(body: bytes, as_text: bool) -> None:
    decode, lines = (decode_text, body) if as_text else (decode_ndjson, b'{"a": "\xc3\xa4"}\n\n1\n \n' * 9)
    whole = decode(lines, 1_000, LineFields())
    with pytest.MonkeyPatch.context() as patched:
        shrink_pieces(patched)
        pieces = decode(memoryview(lines), 1_000, LineFields())
    assert pieces.records.combine_chunks().equals(whole.records.combine_chunks())


@pytest.mark.usefixtures("_small_pieces")
@pytest.mark.parametrize(
    "body",
    [
        b'{"records":[' + b'{"value":"x"},' * 20 + b"]}",
        b'{"records":[' + b'{"value":"x"} ' * 20 + b"]}",
        b'{"records":[' + b'{"value":"x"},' * 20 + b'{"value":"x"}]',
        b'{"records":[' + b'{"value":"x"},' * 20 + b'{"value":"x"}]} x',
        b'{"records":[' + b'{"value":"x"},' * 20 + b'{"value":"x]}',
        b'{"records":[' + b'{"value":"x"},' * 20 + b'{"value":"x"}],"records":[]}',
        b'[{"records":[' + b'{"value":"x"},' * 20 + b'{"value":"x"}]}]',
        b'{"records":' + b" " * 100 + b"]}",
        b'{"records":[' + b'{"value":"\xff"},' * 20 + b'{"value":"x"}]}',
        b'{"records":[' + b"[" * 10_000 + b"]}",
    ],
)
def test_a_large_body_that_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(Invalid):
        decode_json(body, 1_000)


@pytest.mark.usefixtures("_small_pieces")
def test_a_refusal_names_the_record_in_the_whole_body() -> None:
    records: list[dict[str, object]] = [
        {"value": "x", "headers": [{"key": "value", "value": "},{"}]} for _ in range(20)
    ]
    for wrong in ({"value": 1}, {"value": "x", "timestamp": "never"}, {"value": {"base64": "?"}}):
        with pytest.raises(Invalid) as refusal:
            decode_json(json.dumps({"records": [*records, wrong, *records]}).encode(), 1_000)
        assert (refusal.value.field or "").startswith("records[20].")
        assert refusal.value.record == 20


# ---- memory


def traced(work: Callable[[], object]) -> int:
    """The peak of Python's own memory while `work` runs, minus the memory before."""
    decode_json(nulls(1), 1)  # memory for things that are loaded once does not count
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "record", ['{"value":null}', '{"value":""}', '{"value":"","headers":[{"key":"","value":null}]}']
)
def test_too_many_records_are_refused_before_they_are_objects(record: str) -> None:
    body = f'{{"records":[{",".join([record] * 120_000)}]}}'.encode()

    def refused() -> None:
        with pytest.raises(Invalid, match=r"request\.max\.records"):
            decode_json(body, RECORDS_MAX)

    assert traced(refused) < decoding.PIECE_OBJECT_BYTES


def test_headers_are_measured_before_they_are_objects() -> None:
    header = b'{"key":"a","value":null}'
    body = b'{"records":[{"value":null,"headers":[' + b",".join([header] * 200_000) + b"]}]}"

    def refused() -> None:
        with pytest.raises(Invalid, match="headers") as refusal:
            decode_json(body, RECORDS_MAX)
        assert refusal.value.field == "records[0].headers"

    assert traced(refused) < len(body) + MIB, "the piece that is parsed is a copy"
    few = b'{"records":[{"value":"' + b"x" * (2 * MIB) + b'","headers":[' + header + b"]}]}"
    assert decode_json(few, 1).records.column("headers").to_pylist() == [[{"key": "a", "value": None}]]


def test_a_record_has_no_more_headers_than_can_be_read_as_json() -> None:
    for count, fits in ((HEADERS_MAX, True), (HEADERS_MAX + 1, False)):
        body = json.dumps({"records": [{"value": "x", "headers": [{"key": "a", "value": "b"}] * count}]}).encode()
        with nullcontext() if fits else pytest.raises(Invalid, match=str(HEADERS_MAX)):
            decode_json(body, 1)


@pytest.mark.parametrize("decode", [decode_text, decode_ndjson])
def test_lines_are_counted_before_they_are_objects(decode: Callable[..., object]) -> None:
    body = b"\n" * (4 * MIB)

    def refused() -> None:
        with pytest.raises(Invalid, match=r"request\.max\.records"):
            decode(body, RECORDS_MAX, LineFields())

    assert traced(refused) < MIB


def test_as_many_records_as_are_allowed_take_no_more_than_is_counted() -> None:
    body, drafts, arrow_before = nulls(RECORDS_MAX), [], pa.total_allocated_bytes()
    objects_bytes = traced(lambda: drafts.append(decode_json(body, RECORDS_MAX)))
    columns_bytes = pa.total_allocated_bytes() - arrow_before
    assert objects_bytes < decoding.PIECE_OBJECT_BYTES
    assert columns_bytes < RECORD_BYTES * RECORDS_MAX
    assert drafts[0].body_bytes >= max(len(body), columns_bytes)


async def expanded(reader: BodyReader, packed: bytes) -> object:
    with reader.in_flight() as held:
        return await reader.read(arriving([packed], content_encoding="gzip"), held)


async def test_a_body_is_counted_before_it_is_expanded() -> None:
    packed, reader = gzip.compress(bytes(32 * MIB)), BodyReader(32 * MIB, 36 * MIB, 5)
    reader.take(32 * MIB)  # of other requests
    tracemalloc.start()
    with pytest.raises(Overloaded):
        await expanded(reader, packed)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 8 * MIB
    assert reader.in_flight_bytes == 32 * MIB


async def test_decoding_is_counted_before_it_begins() -> None:
    body = b"\n" * 200_000
    reader, form = BodyReader(MIB, 9 * MIB, 5), BodyForm(Media.TEXT, LineFields(), MIB)
    for records_max, room in ((10**6, False), (10, True)):
        work = Decoding(records_max)
        assert (added_bytes(len(body), records_max) <= 9 * MIB) is room
        with reader.in_flight() as held, pytest.raises(Invalid if room else Overloaded):
            await work.draft(form, body, held)
        assert reader.in_flight_bytes == 0
        work.shutdown(wait=True)


async def test_several_bodies_are_decoded_at_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding.os, "cpu_count", lambda: 64)
    work, reader = Decoding(10**6), BodyReader(MIB, 900 * MIB, 5)
    assert work.threads == decoding.DECODE_THREADS_MAX
    together = threading.Barrier(work.threads, timeout=20)
    monkeypatch.setattr(decoding, "decode_text", lambda *_: together.wait())
    form = BodyForm(Media.TEXT, LineFields(), MIB)

    async def one() -> None:
        with reader.in_flight() as held:
            await work.draft(form, b"\n" * 300_000, held)

    await asyncio.gather(*(one() for _ in range(work.threads)))
    work.shutdown(wait=True)


# ---- the event loop


@pytest.mark.parametrize(
    ("media", "body"),
    [
        (JSON, gzip.compress(nulls(2_000_000))),
        (TEXT, gzip.compress(b"\n" * (30 * MIB))),
        (NDJSON, gzip.compress(b'"' + b"x" * (30 * MIB) + b'"')),
        (JSON, gzip.compress(bytes(31 * MIB))),
    ],
    ids=["nulls", "newlines", "one-line", "zeros"],
)
async def test_a_small_body_that_expands_to_much_does_not_hold_the_loop(
    live: httpx.AsyncClient, served: Served, media: str, body: bytes
) -> None:
    assert len(body) < 200_000
    headers = {"content-type": media, "content-encoding": "gzip"}
    for attempt in attempts():
        with attempt:
            async with watched_loop(HELD_S_MAX):
                answer = await live.post("/v1/topics/web/records", content=body, headers=headers, timeout=60)
    assert answer.status_code >= 400, "too many records, too large a record, or no JSON"
    assert served.service.bodies.in_flight_bytes == 0


async def test_a_large_body_of_many_records_does_not_hold_the_loop(live: httpx.AsyncClient) -> None:
    path, headers = "/v1/topics/web/records", {"content-type": JSON}
    for attempt in attempts():
        with attempt:
            async with watched_loop(HELD_S_MAX):
                answer = await live.post(path, content=nulls(50_000), headers=headers)
    assert answer.json()["partitions"][0]["count"] == 50_000
    refused = await live.post(path, content=nulls(RECORDS_MAX + 1), headers=headers)
    problem(refused, 422, "invalid")
