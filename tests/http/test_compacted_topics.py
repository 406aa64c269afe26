"""Compacted topics over HTTP: which records they refuse, and how readers skip removed records."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pyarrow as pa
import pytest
from tests.http.conftest import Served
from tests.http.requests import ARROW, JSON, NDJSON, TEXT, arrow_stream, offsets_of, problem, read_arrow

from tidelog.client import Consumer
from tidelog.services.broker.local_broker import LocalBroker

COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
PLACE = "/v1/topics/ages/partitions/0/records"


async def create(client: httpx.AsyncClient, configs: dict[str, str]) -> None:
    answer = await client.post("/v1/topics", json={"name": "ages", "partitions": 1, "configs": configs})
    assert answer.status_code == 201, answer.text


async def produce(client: httpx.AsyncClient, *records: tuple[str | None, str | None]) -> None:
    body = {"records": [{"key": key, "value": value} for key, value in records]}
    answer = await client.post(PLACE, json=body)
    assert answer.status_code == 200, answer.text


async def settle(broker: LocalBroker) -> None:
    """Wait until everything is archived, and compacted as far as it is due."""
    await broker.archive_now()
    await broker.upkeep_now()


@pytest.fixture
async def ages(client: httpx.AsyncClient, broker: LocalBroker) -> None:
    """Offsets 2 and 3 are left below the cold end, which is 4; 4 and 5 are hot."""
    await create(client, COMPACT)
    await produce(client, ("ann", "30"), ("bob", "40"), ("ann", "31"))
    await produce(client, ("bob", "41"))
    await settle(broker)
    await produce(client, ("ann", "32"), ("cid", None))


async def fetched(client: httpx.AsyncClient, query: str) -> dict[str, Any]:
    answer = await client.get(f"{PLACE}?{query}")
    assert answer.status_code == 200, answer.text
    members: dict[str, Any] = answer.json()
    return members


# ---- reading


@pytest.mark.usefixtures("ages")
async def test_a_fetch_within_a_gap_continues_at_the_next_record(client: httpx.AsyncClient) -> None:
    for offset in (0, 1, 2):
        found = await fetched(client, f"offset={offset}")
        assert [(record["offset"], record["value"]) for record in found["records"]] == [
            (2, "31"),
            (3, "41"),
            (4, "32"),
            (5, None),
        ]
        assert found["next_offset"] == 6
    one = await fetched(client, "offset=0&max_records=1")
    assert ([record["offset"] for record in one["records"]], one["next_offset"]) == ([2], 3)


@pytest.mark.usefixtures("ages")
async def test_the_gap_is_the_same_in_every_format(client: httpx.AsyncClient) -> None:
    table = read_arrow((await client.get(f"{PLACE}?offset=1", headers={"accept": ARROW})).content)
    assert table.column("offset").to_pylist() == [2, 3, 4, 5]
    lines = (await client.get(f"{PLACE}?offset=1", headers={"accept": NDJSON})).text.splitlines()
    assert [json.loads(line)["offset"] for line in lines] == [2, 3, 4, 5]


@pytest.mark.usefixtures("ages")
async def test_the_log_still_begins_where_it_did(client: httpx.AsyncClient) -> None:
    log = (await client.get("/v1/topics/ages/log")).json()
    [ends] = log["partitions"]
    assert (ends["log_start_offset"], ends["cold_end"], ends["clean_end"], ends["high_watermark"]) == (0, 4, 4, 6)
    assert sum(segment["records"] for segment in log["segments"]) == 2
    assert (await fetched(client, "offset=earliest"))["records"][0]["offset"] == 2


@pytest.mark.usefixtures("ages")
async def test_a_consumer_passes_over_the_gaps(served: Served) -> None:
    def consumed() -> list[tuple[bytes | None, bytes | None]]:
        with Consumer(served.url, "ages") as consumer:
            tables = [batch.records for batch in consumer.batches(follow=False)]
        records = pa.concat_tables(tables)
        return list(zip(records["key"].to_pylist(), records["value"].to_pylist(), strict=True))

    assert await asyncio.to_thread(consumed) == [(b"ann", b"31"), (b"bob", b"41"), (b"ann", b"32"), (b"cid", None)]


# ---- records without a key


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
@pytest.mark.parametrize(
    ("media", "body"),
    [
        (JSON, json.dumps({"records": [{"key": "a", "value": "1"}, {"value": "2"}]}).encode()),
        (NDJSON, b'{"key": "a", "value": "1"}\n{"value": "2"}\n'),
        (
            ARROW,
            arrow_stream(pa.table({"key": pa.array([b"a", None], pa.binary()), "value": pa.array([b"1", b"2"])})),
        ),
        (ARROW, arrow_stream(pa.table({"value": pa.array([b"1", b"2"], pa.binary())}))),
        (TEXT, b"a line has no key\n"),
    ],
)
async def test_a_record_without_a_key_is_refused_and_nothing_of_its_request_is_taken(
    client: httpx.AsyncClient, policy: str, media: str, body: bytes
) -> None:
    await create(client, {"cleanup.policy": policy})
    members = problem(await client.post(PLACE, content=body, headers={"content-type": media}), 422, "invalid")
    assert members["field"] == "key"
    assert "cleanup.policy" in members["detail"]
    assert await offsets_of(client, "ages") == {0: 0}


async def test_records_without_a_key_stay_when_a_topic_becomes_a_compacted_one(
    client: httpx.AsyncClient, broker: LocalBroker
) -> None:
    await create(client, {})
    await produce(client, ("a", "1"), (None, "kept"), ("a", "2"))
    answer = await client.patch("/v1/topics/ages", json={"configs": COMPACT})
    assert answer.status_code == 200, answer.text
    await settle(broker)
    assert [record["value"] for record in (await fetched(client, "offset=0"))["records"]] == ["kept", "2"]
