"""delete-records over HTTP."""

from __future__ import annotations

import httpx
import pytest
from tests.http.requests import problem

CALL = "/v1/topics/web/partitions/0/delete-records"


async def log_start(client: httpx.AsyncClient) -> int:
    described = (await client.get("/v1/topics/web")).json()
    found: int = described["partitions"][0]["log_start_offset"]
    return found


async def test_records_below_an_offset_are_deleted(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    assert web[0] == 3
    answer = await client.post(CALL, json={"before_offset": 2})
    assert (answer.status_code, answer.json()) == (200, {"log_start_offset": 2})
    gone = problem(await client.get("/v1/topics/web/partitions/0/records?offset=1"), 416, "out_of_range")
    assert (gone["log_start_offset"], gone["high_watermark"]) == (2, 3)
    left = (await client.get("/v1/topics/web/partitions/0/records?offset=2")).json()
    assert [record["offset"] for record in left["records"]] == [2]
    assert (await client.post(CALL, json={"before_offset": 1})).json() == {"log_start_offset": 2}
    assert (await client.post(CALL, json={"before_offset": -1})).json() == {"log_start_offset": 3}
    assert await log_start(client) == 3


@pytest.mark.usefixtures("web")
async def test_an_offset_beyond_the_high_watermark_is_out_of_range(client: httpx.AsyncClient) -> None:
    refused = problem(await client.post(CALL, json={"before_offset": 4}), 416, "out_of_range")
    assert (refused["log_start_offset"], refused["high_watermark"]) == (0, 3)
    assert await log_start(client) == 0


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, None),
        ([], None),
        ({"before_offset": None}, "before_offset"),
        ({"before_offset": "2"}, "before_offset"),
        ({"before_offset": 1.5}, "before_offset"),
        ({"before_offset": True}, "before_offset"),
        ({"before_offset": -2}, "before_offset"),
        ({"before_offset": 2**63}, "before_offset"),
        ({"before_offset": 10**40}, "before_offset"),
        ({"before_offset": 1, "offset": 1}, None),
    ],
)
async def test_a_body_that_is_not_allowed_deletes_nothing(
    client: httpx.AsyncClient, body: object, field: str | None
) -> None:
    assert problem(await client.post(CALL, json=body), 422, "invalid").get("field") == field
    assert await log_start(client) == 0


@pytest.mark.usefixtures("web")
async def test_an_unreadable_request_or_unknown_partition_deletes_nothing(client: httpx.AsyncClient) -> None:
    body = {"before_offset": 1}
    json_kind = {"content-type": "application/json"}
    problem(await client.post(CALL, content=b"{", headers=json_kind), 400, "invalid")
    problem(await client.post(CALL, content=b"", headers=json_kind), 400, "invalid")
    problem(
        await client.post(CALL, content=b"1", headers={"content-type": "text/plain"}), 415, "unsupported_media_type"
    )
    problem(await client.post(f"{CALL}?before_offset=1", json=body), 400, "invalid")
    problem(await client.post("/v1/topics/web/partitions/x/delete-records", json=body), 400, "invalid")
    problem(await client.post("/v1/topics/web/partitions/9/delete-records", json=body), 404, "not_found")
    problem(await client.post("/v1/topics/none/partitions/0/delete-records", json=body), 404, "not_found")
    assert (await client.get(CALL)).status_code == 405
    assert await log_start(client) == 0
