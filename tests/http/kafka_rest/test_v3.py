"""The parts of v3: reads of the cluster, and the stream of records."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.http.kafka_rest.rest import log_values, refused
from tests.http.sockets import Listening, connected, head

from tidelog.services.http.kafka_rest.v3.documents import Documents
from tidelog.storage.errors import TooLarge
from tidelog.wire.errors import Unreadable

CLUSTER = "/v3/clusters/tidelog"
RECORDS = f"{CLUSTER}/topics/web/records"


async def append(client: httpx.AsyncClient, body: str, path: str = RECORDS) -> list[dict[str, Any]]:
    answer = await client.post(path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_the_cluster_and_what_is_in_it(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    number = 0  # that of a broker alone
    clusters = (await client.get("/v3/clusters")).json()
    assert clusters["kind"] == "KafkaClusterList"
    [cluster] = clusters["data"]
    assert cluster["cluster_id"] == "tidelog"
    assert (await client.get(CLUSTER)).json() == cluster
    assert cluster["topics"]["related"] == f"http://localhost{CLUSTER}/topics"
    [broker] = (await client.get(f"{CLUSTER}/brokers")).json()["data"]
    assert (await client.get(f"{CLUSTER}/brokers/{number}")).json() == broker
    [topic] = (await client.get(f"{CLUSTER}/topics")).json()["data"]
    assert (topic["topic_name"], topic["partitions_count"]) == ("web", 2)
    assert (await client.get(f"{CLUSTER}/topics/web")).json() == topic
    partitions = (await client.get(f"{CLUSTER}/topics/web/partitions")).json()["data"]
    assert [one["partition_id"] for one in partitions] == [0, 1]
    assert partitions[0]["leader"]["related"].endswith(f"/brokers/{number}")
    assert (await client.get(f"{CLUSTER}/topics/web/partitions/1")).json() == partitions[1]
    configs = (await client.get(f"{CLUSTER}/topics/web/configs")).json()["data"]
    assert "retention.ms" in {config["name"] for config in configs}
    refused(await client.get("/v3/clusters/other"), 404, 404)
    refused(await client.get(f"{CLUSTER}/brokers/7"), 404, 404)
    refused(await client.get(f"{CLUSTER}/topics/none"), 404, 40403)
    refused(await client.get(f"{CLUSTER}/topics/web/partitions/9"), 404, 40402)


async def test_links_lead_where_the_client_came_in(client: httpx.AsyncClient) -> None:
    async def link(**headers: str) -> str:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = (await client.get("/v3/clusters", headers=given)).json()
        return str(answer["metadata"]["self"])

    assert await link(host="10.0.0.1:80") == "http://10.0.0.1:80/v3/clusters"
    assert await link(x_forwarded_proto="https", x_forwarded_prefix="/kafka") == "https://localhost/kafka/v3/clusters"
    assert await link(x_forwarded_host="10.1.1.1") == "http://10.1.1.1/v3/clusters"
    assert await link(x_forwarded_host="evil.example") == "http://localhost/v3/clusters"
    assert await link(x_forwarded_proto="ftp", x_forwarded_prefix="//evil.example") == "http://localhost/v3/clusters"


async def test_each_type_of_key_and_value(client: httpx.AsyncClient) -> None:
    await client.post("/v1/topics", json={"name": "web", "partitions": 1})
    records = [
        {"value": {"type": "JSON", "data": 0}},
        {"value": {"type": "STRING", "data": "text"}, "key": {"type": "STRING", "data": "k"}},
        {"value": {"type": "BINARY", "data": base64.b64encode(b"\xff").decode()}},
        {"key": {"type": "JSON", "data": None}, "value": None},
        {},
    ]
    body = "\n".join(map(json.dumps, records))
    lines = await append(client, body.replace('"data": 0', '"data": 123456789012345678901234567890'))
    assert [line["error_code"] for line in lines] == [200] * 5
    assert [(line["partition_id"], line["offset"]) for line in lines] == [(0, n) for n in range(5)]
    assert (lines[0]["topic_name"], lines[0]["cluster_id"]) == ("web", "tidelog")
    assert (lines[1]["key"], lines[1]["value"]) == ({"type": "STRING", "size": 1}, {"type": "STRING", "size": 4})
    values = ["123456789012345678901234567890", "text", {"base64": "/w=="}, None, None]
    assert await log_values(client, "web", 0) == values


@pytest.mark.parametrize("between", ["\n", "", "\r\n\r\n", "  "])
async def test_records_may_be_written_in_any_way(client: httpx.AsyncClient, between: str) -> None:
    await client.post("/v1/topics", json={"name": "web", "partitions": 1})
    records = [json.dumps({"value": {"type": "JSON", "data": f'}}{n}"\\'}}, indent=n % 3 or None) for n in range(9)]
    lines = await append(client, between.join(records) + between)
    assert [line["offset"] for line in lines] == list(range(9))


async def test_partition_timestamp_and_headers(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    record = {
        "partition_id": 1,
        "headers": [{"name": "h", "value": base64.b64encode(b"x").decode()}],
        "timestamp": "2026-01-31T12:00:00Z",
        "value": {"type": "STRING", "data": "v"},
    }
    [line] = await append(client, json.dumps(record))
    assert (line["partition_id"], line["offset"], line["timestamp"]) == (1, 0, "2026-01-31T12:00:00.000Z")
    stored = (await client.get("/v1/topics/web/partitions/1/records")).json()["records"][0]
    assert stored["headers"] == [{"key": "h", "value": "x"}]


async def test_a_wrong_record_has_its_own_line_and_the_others_are_stored(
    client: httpx.AsyncClient, web: dict[int, int]
) -> None:
    records = [
        {"partition_id": 1, "value": {"type": "JSON", "data": 1}},
        {"partition_id": 9, "value": {"type": "JSON", "data": 2}},
        {"partition_id": 1, "value": {"type": "AVRO", "data": 3}},
        {"partition_id": 1, "value": {"data": 4}},
        {"partition_id": 1, "value": {"type": "BINARY", "data": "!"}},
        {"partition_id": 1, "valu": 5},
        {"partition_id": -1, "value": {"type": "JSON", "data": 6}},
        {"partition_id": 1, "value": {"type": "JSON", "data": 7}},
    ]
    lines = await append(client, "\n".join(map(json.dumps, records)))
    assert [line["error_code"] for line in lines] == [200, 422, 422, 422, 422, 422, 422, 200]
    assert await log_values(client, "web", 1) == ["1", "7"]


@pytest.mark.parametrize("body", ["", "  \n", "{", "}", '{"value":{"type":"JSON","data":1}', "nonsense"])
async def test_a_body_without_whole_records_is_refused(client: httpx.AsyncClient, body: str) -> None:
    answer = await client.post(RECORDS, content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422), answer.text


async def test_lines_come_while_the_body_is_sent(
    served: Listening, client: httpx.AsyncClient, web: dict[int, int]
) -> None:
    record = b'{"partition_id":1,"value":{"type":"JSON","data":1}}'
    async with connected(served) as wire:
        await wire.send(head("POST", RECORDS, Content_Type="application/json", Transfer_Encoding="chunked"))
        for offset in range(3):
            await wire.send(b"%x\r\n%b\r\n" % (len(record), record))
            assert b'"offset":%d' % offset in await wire.until(b'"size":1}}\r\n')
        await wire.send(b"5\r\n{bad}\r\n1\r\n{\r\n0\r\n\r\n")
        assert b'"error_code":400' in await wire.until(b"}\r\n")
        assert b'"error_code":400' in await wire.until(b"}\r\n")
        await wire.until(b"0\r\n\r\n")
    assert await log_values(client, "web", 1) == ["1"] * 3


async def test_a_streamed_body_gets_its_lines(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    async def body() -> AsyncIterator[bytes]:
        text = b'{"partition_id":1,"value":{"type":"JSON","data":"\\"}{"}}' * 20
        for first in range(0, len(text), 7):
            yield text[first : first + 7]

    answer = await client.post(RECORDS, content=body(), headers={"content-type": "application/json"})
    assert [json.loads(line)["offset"] for line in answer.text.splitlines()] == list(range(20))


def test_documents_are_bounded() -> None:
    documents = Documents(100)
    assert documents.add(b'{"a":"' + b"x" * 50) == []
    with pytest.raises(TooLarge, match=r"request\.max\.bytes"):
        documents.add(b"x" * 60)
    with pytest.raises(Unreadable):
        Documents(100).add(b"{}}")


async def test_groups_are_listed(client: httpx.AsyncClient) -> None:
    assert (await client.get(f"{CLUSTER}/consumer-groups")).json()["data"] == []
    await client.post("/consumers/billing", json={"name": "i"})
    offset = {"offsets": [{"topic": "web", "partition": 0, "offset": 1}]}
    await client.post("/consumers/billing/instances/i/offsets", json=offset)
    [group] = (await client.get(f"{CLUSTER}/consumer-groups")).json()["data"]
    assert group["consumer_group_id"] == "billing"
    assert group["metadata"]["self"].endswith("/consumer-groups/billing")
