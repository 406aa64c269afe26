"""Calls on consumer instances that are refused."""

from __future__ import annotations

import json

import httpx
import pytest
from tests.http.kafka_rest.instance_calls import ONE, create, parts, post
from tests.http.kafka_rest.rest import MANAGEMENT, refused

pytestmark = pytest.mark.usefixtures("topic")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ("{", 400, 400),
        ('{"format":"avro"}', 422, 42204),
        ('{"format":"xml"}', 422, 42204),
        ('{"format":7}', 422, 42204),
        ('{"auto.offset.reset":"smallest"}', 422, 42204),
        ('{"auto.commit.enable":"maybe"}', 422, 42204),
        ('{"fetch.min.bytes":-2}', 422, 42204),
        ('{"consumer.request.timeout.ms":"x"}', 422, 42204),
        ('{"consumer.request.timeout.ms":-1}', 422, 42204),
        ('{"name":"a/b"}', 422, 42204),
        ('{"name":""}', 422, 42204),
        ('{"nmae":"a"}', 422, 42204),
        ("[]", 422, 42204),
    ],
)
async def test_wrong_configs(client: httpx.AsyncClient, body: str, status: int, code: int) -> None:
    answer = await client.post("/consumers/g", content=body, headers={"content-type": MANAGEMENT})
    refused(answer, status, code)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", ""),
        ("GET", "/records"),
        ("GET", "/subscription"),
        ("DELETE", "/subscription"),
        ("GET", "/assignments"),
        ("GET", "/offsets"),
        ("POST", "/offsets"),
    ],
)
async def test_a_missing_instance_is_40403(client: httpx.AsyncClient, method: str, path: str) -> None:
    refused(await client.request(method, f"{ONE}{path}"), 404, 40403)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/subscription", {"topics": ["t"]}),
        ("/assignments", parts(0)),
        ("/positions", {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]}),
        ("/positions/beginning", parts(0)),
        ("/positions/end", parts(0)),
        ("/offsets", {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]}),
    ],
)
async def test_posts_on_a_missing_instance_are_40403(client: httpx.AsyncClient, path: str, body: object) -> None:
    refused(await post(client, f"{ONE}{path}", body), 404, 40403)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/subscription", "", 400),
        ("/subscription", "{}", 422),
        ("/subscription", '{"topics":[]}', 422),
        ("/subscription", '{"topics":"t"}', 422),
        ("/subscription", '{"topic_pattern":"("}', 422),
        ("/assignments", "{}", 422),
        ("/assignments", '{"partitions":[{"topic":"t"}]}', 422),
        ("/assignments", '{"partitions":[{"topic":"t","partition":-1}]}', 422),
        ("/positions", '{"offsets":[{"topic":"t","partition":0,"offset":-1}]}', 422),
        ("/positions", '{"timestamps":[{"topic":"t","partition":0,"timestamp":"noon"}]}', 422),
        ("/positions/beginning", "[]", 422),
        ("/offsets", '{"offsets":[{"topic":"t","partition":0,"offset":9223372036854775807}]}', 422),
        ("/offsets", '{"offsets":[{"topic":"t","partition":0}]}', 422),
        ("/offsets", "{", 400),
    ],
)
async def test_wrong_bodies(client: httpx.AsyncClient, path: str, body: str, status: int) -> None:
    await create(client)
    answer = await client.post(f"{ONE}{path}", content=body, headers={"content-type": MANAGEMENT})
    refused(answer, status, status)


async def test_types_of_bodies_and_answers(client: httpx.AsyncClient) -> None:
    await create(client)
    body = json.dumps({"topics": ["t"]})
    for kind in ("text/csv", "application/vnd.kafka.v1+json"):
        answer = await client.post(f"{ONE}/subscription", content=body, headers={"content-type": kind})
        refused(answer, 415, 415)
    refused(await client.post("/consumers/g", headers={"origin": "http://localhost"}), 415, 415)
    refused(await client.get(f"{ONE}/subscription", headers={"accept": "text/html"}), 406, 406)
    refused(await client.get("/consumers"), 404, 404)
    refused(await client.get("/consumers/g"), 405, 405)
