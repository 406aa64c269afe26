"""Routes about the broker itself: health, metrics, the cluster and its documentation."""

from __future__ import annotations

import re

import httpx
from fastapi import FastAPI
from fastapi.routing import APIRoute
from prometheus_client.parser import text_string_to_metric_families
from tests.http.requests import problem

from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.formats import FEATURE_LEVEL

DOCUMENTATION = ("/docs", "/openapi.json")


async def test_a_started_broker_is_alive_and_ready(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz")).json() == {"status": "alive"}
    assert (await client.get("/readyz")).json() == {"status": "ready"}


async def test_a_closed_broker_is_alive_and_not_ready(client: httpx.AsyncClient, broker: LocalBroker) -> None:
    await broker.aclose()
    assert (await client.get("/healthz")).status_code == 200
    answer = await client.get("/readyz")
    assert "stopping" in problem(answer, 503, "unavailable")["detail"]
    assert answer.headers["retry-after"]
    produced = await client.post("/v1/topics/web/records", json={"records": [{"value": "x"}]})
    problem(produced, 503, "overloaded")


async def test_the_cluster_tells_version_store_and_shards(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    cluster = (await client.get("/v1/cluster")).json()
    assert (cluster["store"], cluster["ready"], cluster["reason"]) == ("memory:", True, "")
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", cluster["version"])
    assert [(shard["shard"], shard["leading"], shard["epoch"]) for shard in cluster["shards"]] == [
        (0, True, 1),
        (1, True, 1),
    ]


async def test_a_broker_alone_is_a_cluster_of_one(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    cluster = (await client.get("/v1/cluster")).json()["cluster"]
    (alone,) = cluster["brokers"]
    assert (cluster["coordinator"], cluster["trouble"]) == ("embedded", "")
    assert (alone["shards"], alone["draining"]) == (2, False)
    assert {shard["leader"] for shard in cluster["shards"]} == {alone["broker"]}


async def test_a_broker_alone_cannot_be_drained(client: httpx.AsyncClient) -> None:
    for method in ("POST", "DELETE"):
        headers = {"content-type": "application/json"}
        answer = await client.request(method, "/v1/cluster/brokers/broker/drain", headers=headers)
        assert "only broker" in problem(answer, 422, "invalid")["detail"]


async def test_the_feature_level_rises_no_further_than_the_broker_knows(
    client: httpx.AsyncClient, web: dict[int, int]
) -> None:
    level = (await client.get("/v1/cluster")).json()["cluster"]["feature_level"]
    assert level == FEATURE_LEVEL
    assert (await client.put("/v1/cluster/feature-level", json={"level": level})).status_code == 204
    refused = await client.put("/v1/cluster/feature-level", json={"level": level + 1})
    assert "install a later version" in problem(refused, 422, "invalid")["detail"]
    problem(await client.put("/v1/cluster/feature-level", json={"level": 0}), 422, "invalid")


async def metrics(client: httpx.AsyncClient) -> dict[tuple[str, str], float]:
    """Every sample by its name and the value of its first label."""
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def test_metrics_count_what_was_done(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    await client.get("/v1/topics/web/partitions/0/records")
    await client.get("/v1/topics/nothing")
    samples = await metrics(client)
    assert samples["tidelog_produced_records_total", "web"] == 3
    assert samples["tidelog_fetched_records_total", "web"] == 3
    assert samples["tidelog_ack_seconds_count", ""] == 1
    assert samples["tidelog_wal_puts_total", "web"] == 1
    assert samples["tidelog_estimated_dollars_total", "web"] >= 0.000005
    assert samples["tidelog_cold_end_lag_records", "web"] == 3
    assert samples["tidelog_http_problems_total", "not_found"] == 1
    for name in ("tidelog_buffered_bytes", "tidelog_http_waiters", "tidelog_http_body_bytes"):
        assert samples[name, ""] == 0


async def test_the_documentation_needs_nothing_from_elsewhere(client: httpx.AsyncClient) -> None:
    page = await client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "http://" not in page.text
    assert "https://" not in page.text


async def test_every_route_is_described_with_examples(client: httpx.AsyncClient, app: FastAPI) -> None:
    api = (await client.get("/openapi.json")).json()
    calls = {(path, method): call for path, methods in api["paths"].items() for method, call in methods.items()}
    routes = [route for route in app.routes if isinstance(route, APIRoute) and route.path not in DOCUMENTATION]
    assert calls.keys() == {(route.path_format, method.lower()) for route in routes for method in route.methods}
    assert ("/v1/topics/{topic}/log", "get") in calls
    for (path, method), call in calls.items():
        place = f"{method} {path}"
        assert call["description"], place
        named = {parameter["name"] for parameter in call["parameters"]}
        assert set(re.findall(r"{(\w+)}", path)) <= named, place
        contents = [call.get("requestBody", {}).get("content", {})]
        contents += [answer.get("content", {}) for status, answer in call["responses"].items() if status < "400"]
        assert all("example" in what for content in contents for what in content.values()), place
