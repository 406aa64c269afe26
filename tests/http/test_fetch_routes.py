"""Fetch over HTTP: positions, limits, media types and the parts of an answer."""

from __future__ import annotations

import json

import httpx
import msgspec
import pytest
from tests.http.requests import ARROW, JSON, NDJSON, TEXT, problem, read_arrow

from tidelog.storage.records import RECORD_SCHEMA

P0 = "/v1/topics/web/partitions/0/records"
BINARY = {"base64": "/w=="}


async def offsets(client: httpx.AsyncClient, query: str) -> list[int]:
    answer = await client.get(f"{P0}?{query}")
    assert answer.status_code == 200, answer.text
    return [record["offset"] for record in answer.json()["records"]]


async def test_json_tells_records_and_where_to_continue(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    answer = await client.get(P0)
    body = answer.json()
    times = [record.pop("timestamp") for record in body["records"]]
    assert all(isinstance(time, int) for time in times)
    assert body == {
        "topic": "web",
        "partition": 0,
        "records": [
            {"offset": 0, "key": "a", "value": "one", "headers": []},
            {"offset": 1, "key": None, "value": BINARY, "headers": []},
            {"offset": 2, "key": None, "value": None, "headers": []},
        ],
        "next_offset": 3,
        "high_watermark": 3,
        "log_start_offset": 0,
    }


@pytest.mark.parametrize("media", [JSON, NDJSON, ARROW])
async def test_each_answer_carries_the_offsets_as_headers(
    client: httpx.AsyncClient, web: dict[int, int], media: str
) -> None:
    answer = await client.get(f"{P0}?max_records=2", headers={"accept": media})
    assert answer.headers["content-type"] == media
    names = ("tidelog-next-offset", "tidelog-high-watermark", "tidelog-log-start-offset")
    assert [answer.headers[name] for name in names] == ["2", "3", "0"]


async def test_ndjson_is_a_record_a_line(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    answer = await client.get(P0, headers={"accept": NDJSON})
    assert [json.loads(line)["offset"] for line in answer.text.splitlines()] == [0, 1, 2]


async def test_arrow_has_the_record_schema(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    for partition, values in ((0, [b"one", b"\xff", None]), (1, [])):
        answer = await client.get(f"/v1/topics/web/partitions/{partition}/records", headers={"accept": ARROW})
        table = read_arrow(answer.content)
        assert table.schema == RECORD_SCHEMA
        assert table.column("value").to_pylist() == values


async def test_base64_may_be_asked_for(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    records = (await client.get(f"{P0}?encoding=base64")).json()["records"]
    assert [record["value"] for record in records] == [{"base64": "b25l"}, BINARY, None]
    assert records[0]["key"] == {"base64": "YQ=="}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", [0, 1, 2]),
        ("offset=earliest", [0, 1, 2]),
        ("offset=1", [1, 2]),
        ("offset=3", []),
        ("offset=latest", []),
        ("offset=-1", [2]),
        ("offset=-100", [0, 1, 2]),
        ("offset=@0", [0, 1, 2]),
        ("offset=@9999-01-01T00:00:00Z", []),
        ("max_records=1", [0]),
        ("max_bytes=1", [0]),
        ("max_records=9223372036854775807", [0, 1, 2]),
    ],
)
async def test_reading_begins_and_ends_where_asked(
    client: httpx.AsyncClient, web: dict[int, int], query: str, found: list[int]
) -> None:
    assert await offsets(client, query) == found


async def test_an_offset_out_of_range_says_what_the_range_is(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    for offset in ("4", "9223372036854775807"):
        refused = problem(await client.get(f"{P0}?offset={offset}"), 416, "out_of_range")
        assert (refused["log_start_offset"], refused["high_watermark"]) == (0, 3)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("offset=", "offset"),
        ("offset=x", "offset"),
        ("offset=1.5", "offset"),
        ("offset=9223372036854775808", "offset"),
        ("offset=@now", "offset"),
        ("max_records=0", "max_records"),
        ("max_records=-1", "max_records"),
        ("max_records=x", "max_records"),
        ("max_bytes=0", "max_bytes"),
        ("max_bytes=1e6", "max_bytes"),
        ("wait_ms=-1", "wait_ms"),
        ("wait_ms=" + "9" * 1_000, "wait_ms"),
        ("encoding=hex", "encoding"),
        ("limit=3", "limit"),
        ("offset=1&offset=2", "offset"),
    ],
)
async def test_parameters_that_cannot_be_read_are_refused(
    client: httpx.AsyncClient, web: dict[int, int], query: str, field: str
) -> None:
    assert problem(await client.get(f"{P0}?{query}"), 400, "invalid")["field"] == field


async def test_missing_topics_and_partitions_are_not_found(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    for tail in ("records", "offset?at=latest", "offset?at=1"):
        problem(await client.get(f"/v1/topics/web/partitions/2/{tail}"), 404, "not_found")
        problem(await client.get(f"/v1/topics/nothing/partitions/0/{tail}"), 404, "not_found")
        problem(await client.get(f"/v1/topics/web/partitions/x/{tail}"), 400, "invalid")
        problem(await client.get(f"/v1/topics/a%20b/partitions/0/{tail}"), 422, "invalid")
    problem(await client.get("/v1/topics/nothing/records"), 404, "not_found")
    problem(await client.get("/v1/topics/nothing"), 404, "not_found")


async def test_an_accept_that_cannot_be_met_is_refused(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    refused = problem(await client.get(P0, headers={"accept": TEXT}), 406, "not_acceptable")
    assert JSON in refused["known"]


@pytest.mark.parametrize(("at", "offset"), [("earliest", 0), ("latest", 3), ("-2", 1), ("7", 7), ("@0", 0)])
async def test_a_position_is_resolved(client: httpx.AsyncClient, web: dict[int, int], at: str, offset: int) -> None:
    answer = await client.get(f"/v1/topics/web/partitions/0/offset?at={at}")
    assert answer.json() == {"offset": offset}


async def test_a_position_has_to_be_named(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    for query in ("", "?at=", "?at=x", "?offset=1"):
        problem(await client.get(f"/v1/topics/web/partitions/0/offset{query}"), 400, "invalid")


async def test_large_answers_are_the_same_as_small_ones(client: httpx.AsyncClient) -> None:
    """Above a size they are encoded in a thread."""
    values = [f"{number:01000d}" for number in range(800)]
    await client.post(P0, json={"records": [{"value": value} for value in values]})
    answer = await client.get(P0)
    assert [record["value"] for record in msgspec.json.decode(answer.content)["records"]] == values
