"""Topics over HTTP."""

from __future__ import annotations

import httpx
import pytest
from tests.http.requests import problem


async def test_a_topic_is_created_described_listed_altered_and_deleted(client: httpx.AsyncClient) -> None:
    created = await client.post(
        "/v1/topics", json={"name": "web", "partitions": 3, "configs": {"retention.ms": 86_400_000}}
    )
    assert created.status_code == 201
    topic = created.json()
    assert topic["name"] == "web"
    assert len(topic["topic_id"]) == 32
    assert [partition["partition"] for partition in topic["partitions"]] == [0, 1, 2]
    assert topic["configs"]["retention.ms"] == "86400000"
    assert (await client.get("/v1/topics/web")).json() == topic
    places = [{"partition": p["partition"], "shard": p["shard"]} for p in topic["partitions"]]
    assert (await client.get("/v1/topics")).json() == {"topics": [{**topic, "partitions": places}]}
    assert (await client.get("/v1/topics?detail=true")).json() == {"topics": [topic]}

    altered = await client.patch("/v1/topics/web", json={"configs": {"retention.ms": None}, "partitions": 4})
    assert altered.status_code == 200
    assert altered.json()["configs"]["retention.ms"] == "604800000"
    assert len(altered.json()["partitions"]) == 4

    assert (await client.delete("/v1/topics/web")).status_code == 204
    problem(await client.get("/v1/topics/web"), 404, "not_found")
    problem(await client.delete("/v1/topics/web"), 404, "not_found")
    problem(await client.patch("/v1/topics/web", json={"partitions": 9}), 404, "not_found")
    assert (await client.get("/v1/topics")).json() == {"topics": []}


async def test_a_name_that_is_taken_is_a_conflict(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    problem(await client.post("/v1/topics", json={"name": "web"}), 409, "already_exists")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, None),
        ({"name": 1}, "name"),
        ({"name": None}, "name"),
        ({"name": ""}, "topic"),
        ({"name": "."}, "topic"),
        ({"name": "a/b"}, "topic"),
        ({"name": "ä"}, "topic"),
        ({"name": "x" * 250}, "topic"),
        ({"name": "x" * 100_000}, "topic"),
        ({"name": "new", "partitions": 0}, "partitions"),
        ({"name": "new", "partitions": -1}, "partitions"),
        ({"name": "new", "partitions": 100_001}, "partitions"),
        ({"name": "new", "partitions": 10**30}, "partitions"),
        ({"name": "new", "partitions": "4"}, "partitions"),
        ({"name": "new", "partitions": 1.5}, "partitions"),
        ({"name": "new", "configs": []}, "configs"),
        ({"name": "new", "configs": {"retention.hours": 1}}, "retention.hours"),
        ({"name": "new", "configs": {"retention.ms": "soon"}}, "retention.ms"),
        ({"name": "new", "configs": {"retention.ms": -2}}, "retention.ms"),
        ({"name": "new", "configs": {"retention.ms": 10**40}}, "retention.ms"),
        ({"name": "new", "configs": {"cleanup.policy": "shred"}}, "cleanup.policy"),
        ({"name": "new", "configs": {"retention.ms": {}}}, "configs[...]"),
        ({"name": "new", "colour": "red"}, None),
    ],
)
async def test_a_create_that_is_not_allowed_names_the_field_and_creates_nothing(
    client: httpx.AsyncClient, body: object, field: str | None
) -> None:
    assert problem(await client.post("/v1/topics", json=body), 422, "invalid").get("field") == field
    assert (await client.get("/v1/topics")).json() == {"topics": []}


async def test_an_unknown_config_is_refused_with_the_list_of_those_known(client: httpx.AsyncClient) -> None:
    refused = problem(await client.post("/v1/topics", json={"name": "n", "configs": {"x": 1}}), 422, "invalid")
    for name in ("retention.ms", "retention.bytes", "cleanup.policy", "segment.bytes", "max.message.bytes"):
        assert name in refused["detail"]


@pytest.mark.parametrize(
    "body", [{"partitions": 1}, {"partitions": 0}, {"configs": {"x": 1}}, {"name": "other"}, [], {"configs": None}]
)
async def test_an_alter_that_is_not_allowed_changes_nothing(
    client: httpx.AsyncClient, web: dict[int, int], body: object
) -> None:
    before = (await client.get("/v1/topics/web")).json()
    problem(await client.patch("/v1/topics/web", json=body), 422, "invalid")
    assert (await client.get("/v1/topics/web")).json() == before


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b'{"name":"\\ud800"}'])
async def test_a_body_that_is_not_json_is_refused(client: httpx.AsyncClient, content: bytes) -> None:
    for method, path in (("POST", "/v1/topics"), ("PATCH", "/v1/topics/web")):
        answer = await client.request(method, path, content=content, headers={"content-type": "application/json"})
        assert answer.status_code in (400, 422), answer.text


async def test_bodies_of_other_media_types_are_refused(client: httpx.AsyncClient) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = await client.post("/v1/topics", content=b'{"name":"web"}', headers={"content-type": kind})
        assert problem(answer, 415, "unsupported_media_type")["known"] == ["application/json"]


async def test_names_in_paths_are_checked(client: httpx.AsyncClient) -> None:
    problem(await client.get("/v1/topics/nothing"), 404, "not_found")
    problem(await client.get(f"/v1/topics/{'x' * 300}"), 422, "invalid")
    problem(await client.get("/v1/topics/%C3%A4"), 422, "invalid")
    problem(await client.get("/v1/topics/%FF%00"), 422, "invalid")
    problem(await client.get("/v1/topics/a%2Fb"), 400, "invalid")


async def test_unknown_parameters_and_methods_are_refused(client: httpx.AsyncClient) -> None:
    problem(await client.get("/v1/topics?page=3"), 400, "invalid")
    problem(await client.put("/v1/topics"), 405, "method_not_allowed")
    problem(await client.get("/v2/topics"), 404, "not_found")
    problem(await client.get("/v1/topics", headers={"accept": "text/html"}), 406, "not_acceptable")
