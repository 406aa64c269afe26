"""Requests are counted and timed by route, method and status, with bounded labels."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families
from tests.http.requests import problem

from tidelog.services.http.front.request_measurements import OTHER
from tidelog.services.http.v1 import direct_lane

TOPIC = "/v1/topics/{topic}"


async def requests(client: httpx.AsyncClient) -> dict[tuple[str, str, str], float]:
    families = text_string_to_metric_families((await client.get("/metrics")).text)
    samples = [sample for family in families for sample in family.samples]
    return {
        (s.labels["route"], s.labels["method"], s.labels["status"]): s.value
        for s in samples
        if s.name == "tidelog_http_requests_total"
    }


async def seconds(client: httpx.AsyncClient, route: str) -> tuple[float, float]:
    """The number of timed requests, and the sum of their times."""
    families = text_string_to_metric_families((await client.get("/metrics")).text)
    found = {s.name: s.value for f in families for s in f.samples if s.labels.get("route") == route}
    return found["tidelog_http_request_seconds_count"], found["tidelog_http_request_seconds_sum"]


async def test_every_answer_is_counted_by_its_routes_template(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    before = await requests(client)
    body = {"records": [{"value": "x"}]}
    assert (await client.post("/v1/topics/web/records", json=body)).status_code == 200
    for partition in (0, 1):
        assert (await client.get(f"/v1/topics/web/partitions/{partition}/records")).status_code == 200
    problem(await client.get("/v1/topics/web/partitions/7/records"), 404, "not_found")
    problem(await client.get("/v1/topics/none"), 404, "not_found")
    assert (await client.put("/v1/topics/web")).status_code == 405
    after = await requests(client)
    grown = {labels: count - before.get(labels, 0) for labels, count in after.items() if count != before.get(labels)}
    assert grown == {
        (direct_lane.RECORDS, "POST", "200"): 1,
        (direct_lane.PARTITION_RECORDS, "GET", "200"): 2,
        (direct_lane.PARTITION_RECORDS, "GET", "404"): 1,
        (TOPIC, "GET", "404"): 1,
        (TOPIC, "PUT", "405"): 1,
        ("/metrics", "GET", "200"): 1,
    }


async def test_unknown_paths_and_methods_and_refusals_of_the_front_have_one_label(client: httpx.AsyncClient) -> None:
    for n in range(20):
        assert (await client.get(f"/nowhere/{n}")).status_code == 404
        await client.request(f"MADE{n}", "/nowhere")
        problem(await client.get(f"/v1/topics/{n}", headers={"origin": "http://evil"}), 403, "origin_not_allowed")
    found = await requests(client)
    assert {labels[:2] for labels in found if labels[0] == OTHER} == {(OTHER, "GET"), (OTHER, OTHER)}
    assert found[OTHER, "GET", "403"] == 20


async def test_the_time_to_the_answer_is_a_histogram(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    await client.get("/v1/topics/web/partitions/1/records", params={"wait_ms": 60})
    count, total = await seconds(client, direct_lane.PARTITION_RECORDS)
    assert count == 2, "with the produce of the fixture"
    assert 0.06 <= total < 5
