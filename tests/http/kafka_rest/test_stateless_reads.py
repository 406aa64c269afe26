"""``GET /topics/{t}/partitions/{p}/records``: every record is returned, each one exactly as it is in the log."""

from __future__ import annotations

import asyncio
import base64
import json
import time

import httpx
import pytest
from tests.http.kafka_rest.rest import BINARY, JSON, log_values, placed, read, refused

RECORDS = "/topics/web/partitions/0/records"


async def paged(client: httpx.AsyncClient, kind: str, max_bytes: int) -> list[object]:
    """All values, page by page; each page begins after the last offset of the one before."""
    values, offset = [], 0
    while records := await read(client, RECORDS, kind, offset=offset, max_bytes=max_bytes):
        assert [record["offset"] for record in records] == list(range(offset, offset + len(records)))
        values += [record["value"] for record in records]
        offset += len(records)
    return values


@pytest.mark.parametrize("max_bytes", [1, 1_000, 50_000, 1_000_000])
async def test_no_record_over_1_kib_is_skipped(client: httpx.AsyncClient, max_bytes: int) -> None:
    await client.post("/v1/topics", json={"name": "web", "partitions": 1})
    count = 131 if max_bytes > 1_000 else 13
    values = [f"{n:06}" + "x" * (900 + 37 * (n % 17)) for n in range(count)]
    body = json.dumps({"records": [{"value": value} for value in values]})
    assert len(await placed(client, "/topics/web", body)) == count
    stored = await log_values(client, "web", 0)
    assert [json.loads(value) for value in stored] == values
    assert await paged(client, JSON, max_bytes) == values
    in_base64 = await paged(client, BINARY, max_bytes)
    assert [base64.b64decode(str(value)).decode() for value in in_base64] == stored


async def test_an_empty_read_lasts_its_timeout_and_records_end_it(
    live: httpx.AsyncClient, client: httpx.AsyncClient
) -> None:
    await client.post("/v1/topics", json={"name": "web", "partitions": 1})
    began = time.monotonic()
    answer = await live.get(f"{RECORDS}?offset=0&timeout=150", headers={"accept": JSON})
    assert answer.json() == []
    assert time.monotonic() - began >= 0.15
    waiting = asyncio.ensure_future(live.get(f"{RECORDS}?offset=0&timeout=9000", headers={"accept": JSON}))
    await placed(client, "/topics/web", '{"records":[{"value":1}]}')
    assert [record["value"] for record in (await waiting).json()] == [1]
    assert time.monotonic() - began < 5


async def test_without_an_offset_it_begins_at_the_start_of_the_log(
    client: httpx.AsyncClient, web: dict[int, int]
) -> None:
    assert [record["offset"] for record in await read(client, RECORDS, BINARY)] == [0, 1, 2]
    await client.post("/v1/topics/web/partitions/0/delete-records", json={"before_offset": 2})
    assert [record["offset"] for record in await read(client, RECORDS, BINARY)] == [2]
    message = refused(await client.get(f"{RECORDS}?offset=1", headers={"accept": BINARY}), 400, 40002)
    assert "2" in message
    refused(await client.get(f"{RECORDS}?offset=9", headers={"accept": BINARY}), 400, 40002)


async def test_a_page_ends_before_a_record_that_is_not_json(client: httpx.AsyncClient) -> None:
    await client.post("/v1/topics", json={"name": "web", "partitions": 1})
    values = ["1", "2", "not json", "3"]
    await client.post("/v1/topics/web/records", json={"records": [{"value": value} for value in values]})
    assert [record["value"] for record in await read(client, RECORDS, offset=0)] == [1, 2]
    message = refused(await client.get(f"{RECORDS}?offset=2", headers={"accept": JSON}), 422, 42207)
    assert "offset 2 of partition 0 of 'web'" in message
    assert [record["value"] for record in await read(client, RECORDS, offset=3)] == [3]


@pytest.mark.parametrize(
    "value",
    [
        '1},{"topic":"web","key":null,"value":2',
        '1,"offset":7',
        '"',
        "",
        " ",
        "1 2",
        '{"a":1}}',
        "nul",
        "Infinity",
        '"\\ud800"',
        '"\n"',
    ],
)
async def test_no_record_can_forge_the_page(client: httpx.AsyncClient, value: str) -> None:
    await client.post("/v1/topics", json={"name": "web", "partitions": 1})
    await client.post("/v1/topics/web/records", json={"records": [{"value": value}, {"value": '"'}]})
    refused(await client.get(f"{RECORDS}?offset=0", headers={"accept": JSON}), 422, 42207)


async def test_text_that_is_not_utf8_is_not_json(client: httpx.AsyncClient) -> None:
    value = base64.b64encode(b'"\xff"').decode()
    await client.post("/v1/topics/web/partitions/0/records", json={"records": [{"value": {"base64": value}}]})
    refused(await client.get(f"{RECORDS}?offset=0", headers={"accept": JSON}), 422, 42207)


@pytest.mark.parametrize(
    "query", ["offset=x", "offset=-1", "timeout=x", "max_bytes=1e9", "offset=99999999999999999999"]
)
async def test_a_query_that_is_no_number_is_refused(client: httpx.AsyncClient, web: dict[int, int], query: str) -> None:
    refused(await client.get(f"{RECORDS}?{query}"), 400, 400)


async def test_missing_things_and_types(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    refused(await client.get("/topics/none/partitions/0/records"), 404, 40401)
    refused(await client.get("/topics/web/partitions/5/records"), 404, 40402)
    refused(await client.get("/topics/web/partitions/x/records"), 404, 404)
    refused(await client.get(RECORDS, headers={"accept": "text/html"}), 406, 406)
    assert len(await read(client, RECORDS, BINARY, offset=0, unknown=1)) == 3


async def test_cold_records_are_read_too(client: httpx.AsyncClient, broker: object, web: dict[int, int]) -> None:
    await broker.archive_now()  # type: ignore[attr-defined]
    assert [record["offset"] for record in await read(client, RECORDS, BINARY, offset=0)] == [0, 1, 2]
