"""``GET /v1/topics/{topic}/log``: its parameters and refusals. What a page has is in tests/broker/test_topic_log.py."""

from __future__ import annotations

import httpx
import pytest
from tests.http.requests import TEXT, problem

LOG = "/v1/topics/web/log"


async def test_the_log_of_a_topic_has_its_ends(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    log = (await client.get(LOG)).json()
    described = (await client.get("/v1/topics/web")).json()
    assert (log["topic"], log["topic_id"], log["store"]) == ("web", described["topic_id"], "memory:")
    assert (log["segments"], "next" in log) == ([], False)
    assert [ends["partition"] for ends in log["partitions"]] == [0, 1]
    first = log["partitions"][0]
    assert (first["log_start_offset"], first["cold_end"], first["high_watermark"]) == (0, 0, 3)


async def test_only_partitions_that_are_asked_for_are_told(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    for query, numbers in (("partitions=1", [1]), ("partitions=0-1", [0, 1]), ("shard=999", [])):
        log = (await client.get(f"{LOG}?{query}")).json()
        assert [ends["partition"] for ends in log["partitions"]] == numbers


@pytest.mark.parametrize("name", ["partitions", "min_offset", "max_offset", "min_timestamp", "shard", "limit", "fresh"])
async def test_parameters_that_cannot_be_read_are_refused(
    client: httpx.AsyncClient, web: dict[int, int], name: str
) -> None:
    assert problem(await client.get(f"{LOG}?{name}=x"), 400, "invalid")["field"] == name
    assert problem(await client.get(f"{LOG}?{name}z=1"), 400, "invalid")


async def test_what_the_topic_does_not_have_is_refused(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    problem(await client.get("/v1/topics/nothing/log"), 404, "not_found")
    assert problem(await client.get(f"{LOG}?partitions=7"), 422, "invalid")["field"] == "partitions"
    assert problem(await client.get(f"{LOG}?after=x"), 422, "invalid")["field"] == "after"
    problem(await client.get(LOG, headers={"accept": TEXT}), 406, "not_acceptable")
    problem(await client.get("/v1/topics/web/partitions/0/log"), 404, "not_found")
