"""Archived records are read over HTTP like records that are not archived, on a store of files."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import httpx
import msgspec
import pyarrow.parquet as pq
import pytest
from tests.http.conftest import SETTINGS
from tests.http.requests import ARROW, NDJSON, read_arrow
from tests.http.sockets import WAIT_S

from tidelog.services.settings.settings import Settings
from tidelog.wire.topic_log import TopicLogDescription

P0 = "/v1/topics/web/partitions/0"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Everything is archived at once."""
    return replace(SETTINGS, store=f"file:{tmp_path}", archiver_interval_ms=20, archiver_min_bytes=1)


async def archived(client: httpx.AsyncClient, offset: int) -> TopicLogDescription:
    """The topic's log after the cold end of partition 0 reaches `offset`; each question lets the archiver continue."""
    async with asyncio.timeout(WAIT_S):
        while True:
            log = msgspec.json.decode((await client.get("/v1/topics/web/log")).content, type=TopicLogDescription)
            if log.partition(0).cold_end == offset:
                return log


async def test_a_fetch_gives_the_same_for_cold_and_hot_records(
    client: httpx.AsyncClient, live: httpx.AsyncClient, web: dict[int, int], tmp_path: Path
) -> None:
    before = (await client.get(f"{P0}/records")).json()["records"]
    log = await archived(live, 3)
    [(segment, span)] = log.spans()[0]
    assert (span.base_offset, span.last_offset, span.records) == (0, 2, 3)
    assert log.store == f"file://{tmp_path}"
    rows = pq.read_table(tmp_path / segment.key, columns=["partition", "offset"]).slice(span.first_row, span.records)
    assert rows.to_pylist() == [{"partition": 0, "offset": offset} for offset in range(3)]
    await client.post(f"{P0}/records", json={"records": [{"value": "hot"}]})
    after = (await client.get(f"{P0}/records")).json()["records"]
    assert after[:3] == before
    assert after[3]["value"] == "hot"
    as_arrow = read_arrow((await client.get(f"{P0}/records", headers={"accept": ARROW})).content)
    assert as_arrow.column("offset").to_pylist() == [0, 1, 2, 3]
    lines = (await client.get(f"{P0}/records?offset=1", headers={"accept": NDJSON})).text.splitlines()
    assert len(lines) == 3
