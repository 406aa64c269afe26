"""Produce over HTTP: every media type, the placement of records, conditions and retries."""

from __future__ import annotations

import gzip
import struct

import httpx
import pyarrow as pa
import pytest
from tests.http.requests import ARROW, JSON, NDJSON, TEXT, arrow_stream, full_table, offsets_of, problem, values_table

PRODUCER = {"tidelog-producer-id": "p-1", "tidelog-producer-epoch": "0", "tidelog-sequence": "0"}
P0 = "/v1/topics/web/partitions/0/records"


async def values_of(client: httpx.AsyncClient, partition: int = 0, topic: str = "web") -> list[object]:
    answer = await client.get(f"/v1/topics/{topic}/partitions/{partition}/records")
    return [record["value"] for record in answer.json()["records"]]


@pytest.mark.parametrize(
    ("kind", "body", "values"),
    [
        (JSON, b'{"records":[{"value":"x"},{"value":{"json":{"a": 1}}}]}', ["x", '{"a": 1}']),
        (NDJSON, b'{"a": 1}\n\n[2]', ['{"a": 1}', "[2]"]),
        (TEXT, b"one\r\n\ntwo", ["one\r", "", "two"]),
        (ARROW, arrow_stream(values_table([b"x", b"\xff"])), ["x", {"base64": "/w=="}]),
    ],
)
async def test_each_media_type_is_produced_and_read_back(
    client: httpx.AsyncClient, kind: str, body: bytes, values: list[object]
) -> None:
    for sent, encoding in ((body, "identity"), (gzip.compress(body), "gzip")):
        topic = f"in-{encoding}"
        answer = await client.post(
            f"/v1/topics/{topic}/partitions/0/records",
            content=sent,
            headers={"content-type": kind, "content-encoding": encoding},
        )
        assert answer.status_code == 200, answer.text
        assert answer.json()["topic"] == topic
        [placed] = answer.json()["partitions"]
        assert (placed["partition"], placed["base_offset"], placed["count"]) == (0, 0, len(values))
        assert await values_of(client, topic=topic) == values


async def test_columns_of_arrow_bodies_go_where_they_say(client: httpx.AsyncClient) -> None:
    await client.post("/v1/topics", json={"name": "web", "partitions": 3})
    rows = full_table().set_column(4, "partition", pa.array([1, 2], pa.int32()))
    answer = await client.post("/v1/topics/web/records", content=arrow_stream(rows), headers={"content-type": ARROW})
    assert [placed["partition"] for placed in answer.json()["partitions"]] == [1, 2]
    record = (await client.get("/v1/topics/web/partitions/1/records")).json()["records"][0]
    assert record == {
        "offset": 0,
        "timestamp": 1000,
        "key": "k",
        "value": "v",
        "headers": [{"key": "h", "value": "x"}, {"key": "i", "value": None}],
    }


async def test_records_with_one_key_go_to_one_partition_and_those_without_take_turns(
    client: httpx.AsyncClient,
) -> None:
    await client.post("/v1/topics", json={"name": "web", "partitions": 2})
    keyed = [await client.post("/v1/topics/web/records", json={"records": [{"key": "k", "value": "x"}]}) for _ in "ab"]
    assert len({answer.json()["partitions"][0]["partition"] for answer in keyed}) == 1
    keyless = [await client.post("/v1/topics/web/records", json={"records": [{"value": "x"}]}) for _ in "ab"]
    assert {answer.json()["partitions"][0]["partition"] for answer in keyless} == {0, 1}


async def test_lines_give_key_and_timestamp(client: httpx.AsyncClient) -> None:
    await client.post(
        f"{P0}?key_field=user.id&timestamp_field=at",
        content=b'{"user":{"id":"u"},"at":7}\n',
        headers={"content-type": NDJSON},
    )
    [record] = (await client.get(P0)).json()["records"]
    assert (record["key"], record["timestamp"]) == ("u", 7)


async def test_acks_decide_when_it_is_answered(client: httpx.AsyncClient) -> None:
    body = {"records": [{"value": "x"}]}
    at_once = await client.post(f"{P0}?acks=0", json=body)
    assert at_once.status_code == 202
    assert at_once.json()["partitions"][0]["base_offset"] is None
    buffered = await client.post(f"{P0}?acks=1", json=body)
    assert (buffered.status_code, buffered.json()["partitions"][0]["base_offset"]) == (200, 1)
    committed = await client.post(f"{P0}?acks=all", json=body)
    assert (committed.status_code, committed.json()["partitions"][0]["base_offset"]) == (200, 2)


async def test_an_append_may_be_conditional(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    body = {"records": [{"value": "x"}]}
    assert (await client.post(f"{P0}?expected_offset=3", json=body)).status_code == 200
    refused = problem(await client.post(f"{P0}?expected_offset=3", json=body), 409, "offset_conflict")
    assert refused["next_offset"] == 4
    assert await offsets_of(client, "web") == {0: 4, 1: 0}


async def test_a_retry_of_a_producer_is_in_the_log_once(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    body = {"records": [{"value": "x"}, {"value": "y"}]}
    first = await client.post(P0, json=body, headers=PRODUCER)
    again = await client.post(P0, json=body, headers=PRODUCER)
    assert again.json()["partitions"] == [{**first.json()["partitions"][0], "duplicate": True}]
    gap = await client.post(P0, json=body, headers=PRODUCER | {"tidelog-sequence": "5"})
    assert problem(gap, 409, "sequence_conflict")["expected_sequence"] == 2
    newer = PRODUCER | {"tidelog-producer-epoch": "1"}
    assert (await client.post(P0, json=body, headers=newer)).status_code == 200
    assert problem(await client.post(P0, json=body, headers=PRODUCER), 409, "producer_fenced")["current_epoch"] == 1
    assert await offsets_of(client, "web") == {0: 7, 1: 0}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("acks=2", "acks"),
        ("acks=", "acks"),
        ("acks=all&acks=all", "acks"),
        ("ack=all", "ack"),
        ("expected_offset=-1", "expected_offset"),
        ("expected_offset=x", "expected_offset"),
        ("expected_offset=9223372036854775808", "expected_offset"),
        ("expected_offset=" + "9" * 5_000, "expected_offset"),
        ("expected_offset=1.0", "expected_offset"),
        ("key_field=a", "key_field"),
        ("timestamp_field=a", "timestamp_field"),
        ("%ff=%fe", "ÿ"),
    ],
)
async def test_parameters_that_cannot_be_read_are_refused(
    client: httpx.AsyncClient, web: dict[int, int], query: str, field: str
) -> None:
    refused = problem(await client.post(f"{P0}?{query}", json={"records": [{"value": "x"}]}), 400, "invalid")
    assert refused["field"] == field or field == "ÿ"
    assert await offsets_of(client, "web") == web


@pytest.mark.parametrize("path", ["", ".", "a..b", ".a"])
async def test_a_field_path_has_names(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.post(f"{P0}?key_field={path}", content=b"{}", headers={"content-type": NDJSON})
    assert problem(answer, 400, "invalid")["field"] == "key_field"


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({"tidelog-producer-id": "p"}, "Tidelog-Producer-Epoch"),
        ({"tidelog-sequence": "0"}, "Tidelog-Producer-Id"),
        (PRODUCER | {"tidelog-producer-id": ""}, "Tidelog-Producer-Id"),
        (PRODUCER | {"tidelog-producer-id": "x" * 129}, "Tidelog-Producer-Id"),
        (PRODUCER | {"tidelog-producer-id": "a b"}, "Tidelog-Producer-Id"),
        (PRODUCER | {"tidelog-producer-epoch": "-1"}, "Tidelog-Producer-Epoch"),
        (PRODUCER | {"tidelog-producer-epoch": "2147483648"}, "Tidelog-Producer-Epoch"),
        (PRODUCER | {"tidelog-sequence": "x"}, "Tidelog-Sequence"),
        (PRODUCER | {"tidelog-sequence": "9" * 30}, "Tidelog-Sequence"),
    ],
)
async def test_producer_headers_come_together_and_in_range(
    client: httpx.AsyncClient, web: dict[int, int], headers: dict[str, str], field: str
) -> None:
    answer = await client.post(P0, json={"records": [{"value": "x"}]}, headers=headers)
    assert problem(answer, 400, "invalid")["field"] == field
    assert await offsets_of(client, "web") == web


@pytest.mark.parametrize("extra", [{"params": {"expected_offset": "3"}}, {"headers": PRODUCER}])
async def test_conditions_need_a_partition(
    client: httpx.AsyncClient, web: dict[int, int], extra: dict[str, dict[str, str]]
) -> None:
    answer = await client.post("/v1/topics/web/records", json={"records": [{"value": "x"}]}, **extra)
    problem(answer, 400, "invalid")
    assert await offsets_of(client, "web") == web


async def test_partitions_that_are_not_there_are_refused(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    body = {"records": [{"value": "x"}]}
    problem(await client.post("/v1/topics/web/partitions/2/records", json=body), 404, "not_found")
    for text in ("-1", "x", "1.5", "2147483648", "9" * 400):
        problem(await client.post(f"/v1/topics/web/partitions/{text}/records", json=body), 400, "invalid")
    named = {"records": [{"value": "x"}, {"value": "y", "partition": 2}]}
    assert (await client.post("/v1/topics/web/records", json=named)).status_code in (404, 422)
    elsewhere = {"records": [{"value": "y", "partition": 1}]}
    assert (await client.post(P0, json=elsewhere)).status_code == 422
    assert await offsets_of(client, "web") == web


async def test_keys_and_records_over_their_limits_are_refused(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    long_key = await client.post(P0, json={"records": [{"key": "k" * 65_537, "value": "x"}]})
    assert problem(long_key, 413, "too_large")["limit_name"] == "key.max.bytes"
    await client.patch("/v1/topics/web", json={"configs": {"max.message.bytes": 1_000}})
    long_value = await client.post(P0, json={"records": [{"value": "x"}, {"value": "v" * 1_001}]})
    told = problem(long_value, 413, "too_large")
    assert (told["limit_name"], told["record"]) == ("max.message.bytes", 1)
    assert await offsets_of(client, "web") == web


async def test_a_body_over_the_limit_is_refused(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    answer = await client.post(P0, content=b"x" * ((1 << 20) + 1), headers={"content-type": TEXT})
    refused = problem(answer, 413, "too_large")
    assert (refused["limit_name"], refused["limit_bytes"]) == ("request.max.bytes", 1 << 20)
    assert await offsets_of(client, "web") == web


async def test_media_types_not_read_here_are_refused_with_those_that_are(
    client: httpx.AsyncClient, web: dict[int, int]
) -> None:
    for kind in ("", "text/html", "multipart/form-data", "application/vnd.kafka.json.v2+json"):
        answer = await client.post(P0, content=b"x", headers={"content-type": kind})
        assert problem(answer, 415, "unsupported_media_type")["known"] == [JSON, NDJSON, TEXT, ARROW]
    odd = await client.post(P0, content=b"x", headers={"content-type": TEXT, "content-encoding": "br"})
    problem(odd, 415, "unsupported_media_type")
    assert await offsets_of(client, "web") == web


async def test_a_refused_produce_creates_no_topic(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/topics/fresh/records", json={"records": [{"value": 1}]})
    problem(answer, 422, "invalid")
    problem(await client.get("/v1/topics/fresh"), 404, "not_found")
    problem(await client.post("/v1/topics/a%20b/records", json={"records": [{"value": "x"}]}), 422, "invalid")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (JSON, b""),
        (JSON, b'{"records":[{"value":"good"},{"value":{"base64":"?"}}]}'),
        (JSON, b'{"records":[{"value":"good"},{"value":"\xff"}]}'),
        (NDJSON, b""),
        (NDJSON, b"1\n{\n"),
        (TEXT, b""),
        (ARROW, b""),
        (ARROW, arrow_stream(values_table([b"good"]))[:-20]),
        (ARROW, arrow_stream(values_table([b"aaaa", b"bbbb"])).replace(struct.pack("<ii", 4, 8), b"\xff" * 8)),
        (ARROW, arrow_stream(values_table([b"\0" * 67_000_000]), "zstd")),
        (ARROW, arrow_stream(pa.table({"value": ["text"]}))),
        (ARROW, b"PAR1" * 100),
    ],
)
async def test_a_bad_body_of_any_kind_is_refused_and_changes_nothing(
    client: httpx.AsyncClient, web: dict[int, int], kind: str, body: bytes
) -> None:
    for path in (P0, "/v1/topics/web/records", "/v1/topics/fresh/records"):
        answer = await client.post(path, content=body, headers={"content-type": kind})
        assert answer.status_code in (400, 413, 422), answer.text
    assert await offsets_of(client, "web") == web
    problem(await client.get("/v1/topics/fresh"), 404, "not_found")
