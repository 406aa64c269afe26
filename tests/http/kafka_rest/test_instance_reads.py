"""Reads of a consumer instance: pages, formats, timeouts, records that cannot be read."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx
import pytest
from tests.attempts import attempts, quicker_than
from tests.http.kafka_rest.instance_calls import ONE, create, done, get, parts, poll, values
from tests.http.kafka_rest.rest import BINARY, JSON, MANAGEMENT, placed, refused

pytestmark = pytest.mark.usefixtures("topic")


async def test_the_first_read_of_a_new_group_has_the_records(client: httpx.AsyncClient) -> None:
    await create(client)
    await done(client, f"{ONE}/subscription", {"topics": ["t"]})
    records = await poll(client)
    assert sorted(values(records)) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    assert records[0].keys() == {"topic", "key", "value", "partition", "offset", "timestamp"}
    assert await poll(client) == []
    assert (await get(client, f"{ONE}/assignments")) == parts(0, 1)
    await placed(client, "/topics/t/partitions/1", '{"records":[{"value":15}]}')
    assert values(await poll(client)) == [15]


async def test_each_page_continues_where_the_one_before_ended(client: httpx.AsyncClient) -> None:
    await create(client)
    await done(client, f"{ONE}/assignments", parts(0, 1))
    seen: list[Any] = []
    while records := await poll(client, max_bytes=1):
        assert len(records) == 1
        seen += values(records)
    assert sorted(seen) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    assert seen[:4] != sorted(seen)[:4], "both partitions are read in turn"


async def test_binary_is_the_default_and_must_match_accept(client: httpx.AsyncClient) -> None:
    await create(client, format=None)
    await done(client, f"{ONE}/assignments", parts(0))
    for accept in (JSON, "application/json"):
        refused(await client.get(f"{ONE}/records", headers={"accept": accept}), 406, 40601)
    refused(await client.get(f"{ONE}/records", headers={"accept": "text/html"}), 406, 406)
    assert values(await poll(client, kind=BINARY))[1] == "MQ=="
    for accept in ("*/*", MANAGEMENT, f"{JSON}, {BINARY}"):
        answer = await client.get(f"{ONE}/records?timeout=0", headers={"accept": accept})
        assert answer.status_code == 200


async def test_an_empty_read_lasts_its_timeout_and_records_end_it(live: httpx.AsyncClient) -> None:
    await live.post("/consumers/g", json={"name": "i", "format": "json"})
    await done(live, f"{ONE}/subscription", {"topics": ["t"]})
    assert await poll(live) == [], "auto.offset.reset is latest"
    began = time.monotonic()
    assert await poll(live, timeout=200) == []
    assert time.monotonic() - began >= 0.2
    waiting = asyncio.ensure_future(poll(live, timeout=9_000))
    await asyncio.sleep(0.05)
    await placed(live, "/topics/t/partitions/0", '{"records":[{"value":"new"}]}')
    assert values(await waiting) == ["new"]
    assert time.monotonic() - began < 5


async def test_the_timeout_of_the_instance_is_the_default(live: httpx.AsyncClient) -> None:
    body = {"name": "i", "format": "json", "consumer.request.timeout.ms": "120", "fetch.min.bytes": "-1"}
    await live.post("/consumers/g", json=body)
    await done(live, f"{ONE}/assignments", parts(0))
    for attempt in attempts():
        with attempt, quicker_than(0.9, "a read whose timeout is 0.12 s"):
            began = time.monotonic()
            assert (await live.get(f"{ONE}/records")).json() == []
            assert time.monotonic() - began >= 0.12


async def test_fetch_min_bytes_waits_for_more_until_the_timeout(live: httpx.AsyncClient) -> None:
    body = {"name": "i", "format": "json", "auto.offset.reset": "earliest", "fetch.min.bytes": 5_000}
    await live.post("/consumers/g", json=body)
    await done(live, f"{ONE}/assignments", parts(0))
    waiting = asyncio.ensure_future(poll(live, timeout=9_000))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await placed(live, "/topics/t/partitions/0", json.dumps({"records": [{"value": "x" * 6_000}]}))
    assert len(await waiting) == 6


async def test_many_reads_at_once_answer_each_record_once(client: httpx.AsyncClient) -> None:
    await create(client)
    await done(client, f"{ONE}/subscription", {"topics": ["t"]})
    seen: list[Any] = []
    while True:
        pages = await asyncio.gather(*(poll(client, max_bytes=1) for _ in range(8)))
        if not any(pages):
            break
        seen += [value for page in pages for value in values(page)]
    assert sorted(seen) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]


async def test_a_record_that_is_not_json_is_named_and_can_be_passed(client: httpx.AsyncClient) -> None:
    await client.post("/v1/topics/t/partitions/0/records", json={"records": [{"value": "not json"}]})
    await placed(client, "/topics/t/partitions/0", '{"records":[{"value":6}]}')
    await create(client)
    await done(client, f"{ONE}/assignments", parts(0))
    assert values(await poll(client)) == [0, 1, 2, 3, 4]
    for _ in "ab":
        message = refused(await client.get(f"{ONE}/records?timeout=0", headers={"accept": JSON}), 422, 42207)
        assert "offset 5" in message
    await done(client, f"{ONE}/positions", {"offsets": [{"topic": "t", "partition": 0, "offset": 6}]})
    assert values(await poll(client)) == [6]


async def test_positions_outside_the_log_begin_by_the_reset(client: httpx.AsyncClient) -> None:
    await create(client)
    await done(client, f"{ONE}/assignments", parts(0))
    await client.post("/v1/topics/t/partitions/0/delete-records", json={"before_offset": 3})
    await done(client, f"{ONE}/positions", {"offsets": [{"topic": "t", "partition": 0, "offset": 1}]})
    assert values(await poll(client, timeout=2_000)) == [3, 4]
