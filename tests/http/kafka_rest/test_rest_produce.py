"""``POST /topics/{t}`` and ``/topics/{t}/partitions/{p}``: what is stored, where, and what is refused. Stored values
are counted and compared with the log as the v1 interface reads it."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace

import httpx
import pytest
from tests.http.conftest import SETTINGS
from tests.http.kafka_rest.rest import BINARY, JSON, MANAGEMENT, log_values, placed, produce, read, refused

from tidelog.services.settings.settings import Settings
from tidelog.storage.partitioner import partitions_of

P0 = "/topics/web/partitions/0"


@pytest.mark.parametrize(
    "value",
    [
        "0",
        "{}",
        "[]",
        '""',
        "false",
        "-0",
        "1e400",
        "1E+2",
        "123456789012345678901234567890",
        "-98765432109876543210987654321098765432109876543210",
        "0.1000000000000000055511151231257827",
        '{"a":1,"a":2}',
        r'"\u0041\ud83d\ude00\n\/"',
        '"ä€😀"',
        '{"deep":[[[[{"x":[1,2,{"y":null}]}]]]]}',
    ],
)
async def test_each_json_value_is_stored_as_the_client_wrote_it(
    client: httpx.AsyncClient, web: dict[int, int], value: str
) -> None:
    assert await placed(client, P0, f'{{"records":[{{"value": {value}}}]}}') == [(0, 3)]
    assert (await log_values(client, "web", 0))[3] == value
    answer = await client.get(f"{P0}/records?offset=3&timeout=0", headers={"accept": JSON})
    assert f'"value":{value},'.encode() in answer.content


async def test_null_and_no_value_are_tombstones_with_offsets(client: httpx.AsyncClient) -> None:
    await client.post("/v1/topics", json={"name": "web", "partitions": 3})
    body = '{"records":[{"key":1,"value":null},{"key":2},{"key":3,"value":0},{"key":4,"value":{}}]}'
    places = await placed(client, "/topics/web", body)
    assert all(offset >= 0 for _, offset in places)
    stored = {}
    for partition in range(3):
        for record in await read(client, f"/topics/web/partitions/{partition}/records", offset=0):
            stored[record["key"]] = (record["partition"], record["offset"], record["value"])
    assert stored == {
        number: (*place, value) for number, place, value in zip((1, 2, 3, 4), places, (None, None, 0, {}), strict=True)
    }


async def test_each_record_of_a_request_gets_its_own_place(client: httpx.AsyncClient) -> None:
    await client.post("/v1/topics", json={"name": "web", "partitions": 5})
    records = [{"key": f"k{n}", "value": n} for n in range(50)]
    records += [{"value": n} for n in range(50, 60)]
    records += [{"value": n, "partition": n % 5} for n in range(60, 80)]
    places = await placed(client, "/topics/web", json.dumps({"records": records}))
    found = {}
    for partition in range(5):
        for record in await read(client, f"/topics/web/partitions/{partition}/records", offset=0):
            found[record["value"]] = (record["partition"], record["offset"])
    assert places == [found[number] for number in range(80)]
    assert [partition for partition, _ in places[60:]] == [n % 5 for n in range(60, 80)]
    assert len({partition for partition, _ in places[50:60]}) == 1


async def test_equal_keys_go_to_one_partition_however_they_are_written(client: httpx.AsyncClient) -> None:
    await client.post("/v1/topics", json={"name": "web", "partitions": 50})
    keys = ['{"a":"A","b":[1,2]}', '{ "a" : "\\u0041" ,\n "b":[1, 2] }']
    places = [await placed(client, "/topics/web", f'{{"records":[{{"key":{key},"value":1}}]}}') for key in keys]
    assert places[0][0][0] == places[1][0][0]
    [record, _] = await read(client, f"/topics/web/partitions/{places[0][0][0]}/records", BINARY, offset=0)
    assert base64.b64decode(record["key"]) == b'{"a":"A","b":[1,2]}'


async def test_a_text_key_is_stored_as_json_and_placed_by_murmur2(client: httpx.AsyncClient) -> None:
    import pyarrow as pa

    await client.post("/v1/topics", json={"name": "web", "partitions": 7})
    [(partition, _)] = await placed(client, "/topics/web", '{"records":[{"key":"user 1","value":1}]}')
    assert partition == partitions_of(pa.chunked_array([pa.array([b'"user 1"'], pa.binary())]), 7)[0]


async def test_binary_is_the_default_and_base64(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    body = json.dumps({"records": [{"key": "a2V5", "value": "/wA="}, {"value": ""}, {"value": None}]})
    for kind in (BINARY, MANAGEMENT, "application/vnd.kafka+json"):
        assert len(await placed(client, P0, body, kind)) == 3
    answer = await client.get(f"{P0}/records?offset=3&timeout=0")
    assert answer.headers["content-type"] == BINARY
    assert [(record["key"], record["value"]) for record in answer.json()][:3] == [
        ("a2V5", "/wA="),
        (None, ""),
        (None, None),
    ]


async def test_application_json_stands_for_json(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    answer = await client.post(P0, json={"records": [{"value": {"a": 1}}]})
    assert answer.status_code == 200
    assert (await log_values(client, "web", 0))[3] == '{"a":1}'


async def test_members_for_schemas_may_be_null(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    schemas = '"key_schema":null,"key_schema_id":null,"value_schema":null,"value_schema_id":null'
    assert await placed(client, P0, f'{{{schemas},"records":[{{"value":1}}]}}') == [(0, 3)]


async def test_timestamps_and_headers_are_stored(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    headers = [{"key": "h", "value": base64.b64encode(b"x").decode()}]
    body = json.dumps({"records": [{"value": 1, "timestamp": 5, "headers": headers}]})
    await placed(client, P0, body)
    [record] = await read(client, f"{P0}/records", offset=3)
    assert list(record) == ["topic", "key", "value", "partition", "offset", "timestamp", "headers"]
    assert (record["timestamp"], record["headers"]) == (5, headers)


async def test_a_compressed_body_is_taken(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    body = gzip.compress(b'{"records":[{"value":1}]}')
    answer = await client.post(P0, content=body, headers={"content-type": JSON, "content-encoding": "gzip"})
    assert answer.status_code == 200


@pytest.mark.parametrize("members", ['"records":[%b]', '"value_schema_id":null,"records":[%b]'])
async def test_large_bodies_are_stored_record_by_record(client: httpx.AsyncClient, members: str) -> None:
    await client.post("/v1/topics", json={"name": "web", "partitions": 1})
    values = [json.dumps({"n": n, "text": '}, {"value": "' * 40}).encode() for n in range(1_000)]
    records = b",".join(b'{"value":%b}' % value for value in values)
    body = b"{" + members.encode() % records + b"}"
    assert len(body) > 500_000
    assert await placed(client, P0, body) == [(0, n) for n in range(1_000)]
    assert await log_values(client, "web", 0) == [value.decode() for value in values]


@pytest.mark.parametrize(
    ("body", "kind", "status", "code"),
    [
        ("", JSON, 400, 400),
        ("{", JSON, 400, 400),
        ('{"records":[{"value":NaN}]}', JSON, 400, 400),
        ('{"records":[{"value":01}]}', JSON, 400, 400),
        (b'{"records":[{"value":"\xff"}]}', JSON, 400, 400),
        ('{"records":[{"value":"not base64!"}]}', BINARY, 400, 400),
        ('{"records":[{"key":"AAA","value":"AAAA"}]}', BINARY, 400, 400),
        ("[]", JSON, 422, 422),
        ("{}", JSON, 422, 422),
        ('{"records":[]}', JSON, 422, 422),
        ('{"records":null}', JSON, 422, 422),
        ('{"records":[1]}', JSON, 422, 422),
        ('{"records":[{"value":1,"foo":2}]}', JSON, 422, 422),
        ('{"records":[{"value":1}],"foo":2}', JSON, 422, 422),
        ('{"records":[{"value":1}]}', BINARY, 422, 422),
        ('{"records":[{"value":1,"timestamp":-1}]}', JSON, 422, 422),
        ('{"records":[{"value":1,"timestamp":99999999999999999999}]}', JSON, 422, 422),
        ('{"records":[{"value":1,"partition":"x"}]}', JSON, 422, 422),
        ('{"records":[{"value":1,"partition":2}]}', JSON, 404, 40402),
        ('{"records":[{"value":1,"partition":-1}]}', JSON, 404, 40402),
        ('{"records":[{"value":1,"partition":9999999999}]}', JSON, 404, 40402),
        ('{"records":[{"value":1}]}', "application/vnd.kafka.v1+json", 415, 415),
        ('{"records":[{"value":1}]}', "application/vnd.kafka.xml.v2+json", 415, 415),
        ('{"records":[{"value":1}]}', "application/json; charset=latin-1", 415, 415),
        ('{"records":[{"value":1}]}', "text/csv", 415, 415),
    ],
)
async def test_a_refused_body_changes_nothing(
    client: httpx.AsyncClient, web: dict[int, int], body: str | bytes, kind: str, status: int, code: int
) -> None:
    refused(await produce(client, "/topics/web", body, kind), status, code)
    offsets = [(await client.get(f"/topics/web/partitions/{p}/offsets")).json()["end_offset"] for p in (0, 1)]
    assert offsets == [3, 0]


@pytest.mark.parametrize("kind", ["avro", "jsonschema", "protobuf"])
async def test_formats_with_schemas_are_refused_clearly(client: httpx.AsyncClient, kind: str) -> None:
    media = f"application/vnd.kafka.{kind}.v2+json"
    message = refused(await produce(client, P0, '{"records":[{"value":1}]}', media), 415, 415)
    assert kind in message
    assert "not supported yet" in message
    refused(await client.get(f"{P0}/records", headers={"accept": media}), 406, 406)


async def test_a_record_names_another_partition_than_the_path(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    refused(await produce(client, P0, '{"records":[{"value":1,"partition":1}]}'), 422, 422)


async def test_a_record_that_is_too_large_is_refused(client: httpx.AsyncClient) -> None:
    await client.post("/v1/topics", json={"name": "web", "configs": {"max.message.bytes": 1000}})
    body = json.dumps({"records": [{"value": "x" * 2_000}]})
    assert "max.message.bytes" in refused(await produce(client, "/topics/web", body), 413, 413)


async def test_a_body_that_is_too_large_is_refused(client: httpx.AsyncClient) -> None:
    assert "request.max.bytes" in refused(await produce(client, "/topics/web", b" " * (2 << 20)), 413, 413)


async def test_a_missing_topic_is_created_on_produce(client: httpx.AsyncClient) -> None:
    assert await placed(client, "/topics/new", '{"records":[{"value":1}]}') in ([(0, 0)], [(1, 0)])
    refused(await produce(client, "/topics/web/partitions/7", '{"records":[{"value":1}]}'), 404, 40402)
    refused(await produce(client, "/topics/web/partitions/x", '{"records":[{"value":1}]}'), 404, 404)


class TestWithoutAutoCreation:
    @pytest.fixture
    def settings(self) -> Settings:
        return replace(SETTINGS, auto_create_topics_enable=False)

    async def test_a_missing_topic_is_refused(self, client: httpx.AsyncClient) -> None:
        refused(await produce(client, "/topics/none", '{"records":[{"value":1}]}'), 404, 40401)
        refused(await produce(client, "/topics/none/partitions/0", '{"records":[{"value":1}]}'), 404, 40401)
