"""``GET /v1/topics/{topic}/offsets``: a position in many partitions by one call."""

from __future__ import annotations

import httpx
import pytest
from tests.http.requests import TEXT, problem

OFFSETS = "/v1/topics/web/offsets"


@pytest.mark.parametrize(
    "at", ["earliest", "latest", "-1", "7", "@0", "@4000", "@4000000000000", "@1970-01-01T00:00:00Z"]
)
async def test_each_partition_gets_the_offset_that_a_call_for_it_alone_gives(
    client: httpx.AsyncClient, web: dict[int, int], at: str
) -> None:
    alone = [(await client.get(f"/v1/topics/web/partitions/{number}/offset?at={at}")).json() for number in (0, 1)]
    together = (await client.get(f"{OFFSETS}?at={at}")).json()
    assert together == {"partitions": [{"partition": number, **alone[number]} for number in (0, 1)]}
    some = (await client.get(f"{OFFSETS}?at={at}&partitions=1&fresh=false")).json()
    assert some == {"partitions": together["partitions"][1:]}


async def test_what_cannot_be_read_or_does_not_exist_is_refused(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    for query in ("", "at=soon", "at=latest&partitions=x", "at=latest&fresh=maybe", "at=latest&shard=1"):
        problem(await client.get(f"{OFFSETS}?{query}"), 400, "invalid")
    problem(await client.get(f"{OFFSETS}?at=latest&partitions=0,7"), 404, "not_found")
    problem(await client.get("/v1/topics/nothing/offsets?at=latest"), 404, "not_found")
    problem(await client.get(f"{OFFSETS}?at=latest", headers={"accept": TEXT}), 406, "not_acceptable")


async def test_a_fetch_of_no_records_gives_offsets_and_ends(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    asked = [{"topic": "web", "partition": number, "offset": "earliest"} for number in (0, 1)]
    body = {"partitions": asked, "max_records": 0, "wait_ms": 60_000}
    answer = (await client.post("/v1/fetch", json=body)).json()
    assert answer["records"] == []
    assert [(part["next_offset"], part["high_watermark"]) for part in answer["partitions"]] == [
        (0, web[0]),
        (0, web[1]),
    ]
