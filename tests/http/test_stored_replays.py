"""A consumer that reads archived records gets them as they are stored, and as Arrow where that is not possible."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

import httpx
import pyarrow as pa
import pytest
from tests.anybody import ANYBODY
from tests.broker.drafts import draft
from tests.http.conftest import Served

from tidelog.client import Consumer, ConsumerOptions
from tidelog.client import stored_rows as decoding
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.http.answers import part_answer

RECORDS = 3_000


@pytest.fixture
async def replayed(client: httpx.AsyncClient, broker: LocalBroker) -> None:
    """Two partitions with archived records of a kilobyte, and a few that are not archived."""
    noise = random.Random(7)
    await client.post("/v1/topics", json={"name": "web", "partitions": 2})
    for number in range(2):
        values: list[bytes | None] = [noise.randbytes(1_000) for _ in range(RECORDS)]
        await broker.produce(ANYBODY, "web", draft(values), ProduceOptions(partition=number))
    await broker.archive_now()
    for number in range(2):
        await broker.produce(ANYBODY, "web", draft([b"new"] * 10), ProduceOptions(partition=number))


@pytest.fixture
def stored_answers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of row groups of each answer that has some."""
    found: list[int] = []
    make = part_answer.extracted_file

    def counted(schema: pa.Schema, parts: list[part_answer.ExtractedGroups]) -> object:
        found.append(sum(len(part.groups) for part in parts))
        return make(schema, parts)

    monkeypatch.setattr(part_answer, "extracted_file", counted)
    return found


def read_all(url: str, start: int | str, **options: object) -> Mapping[int, list[int]]:
    """The offsets of each partition, as the consumer gives them out."""
    found: dict[int, list[int]] = {0: [], 1: []}
    wanted = ConsumerOptions(**options)  # type: ignore[arg-type]
    with Consumer(url, "web", partitions=[0, 1], start=start, options=wanted) as consumer:
        for batch in consumer.batches(follow=False):
            found[batch.partition] += batch.records["offset"].to_pylist()
    return found


@pytest.mark.usefixtures("replayed")
@pytest.mark.parametrize("start", [0, 1_234, "-20"])
async def test_every_record_comes_once_in_order(served: Served, stored_answers: list[int], start: int | str) -> None:
    first = RECORDS - 10 if start == "-20" else int(start)
    found = await asyncio.to_thread(read_all, served.url, start)
    assert found == {key: list(range(first, RECORDS + 10)) for key in range(2)}
    assert stored_answers


@pytest.mark.usefixtures("replayed")
async def test_without_compression_the_broker_decodes(served: Served, stored_answers: list[int]) -> None:
    found = await asyncio.to_thread(lambda: read_all(served.url, 0, compression="none"))
    assert found == {key: list(range(RECORDS + 10)) for key in range(2)}
    assert not stored_answers


@pytest.mark.usefixtures("replayed")
async def test_a_fetch_smaller_than_a_row_group_comes_as_arrow(served: Served, stored_answers: list[int]) -> None:
    found = await asyncio.to_thread(lambda: read_all(served.url, 0, max_records=500))
    assert found == {key: list(range(RECORDS + 10)) for key in range(2)}
    assert not stored_answers


@pytest.mark.usefixtures("replayed")
async def test_a_client_that_cannot_decode_them_asks_for_arrow(
    served: Served, stored_answers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> object:
        raise pa.ArrowInvalid("no such encoding")

    monkeypatch.setattr(decoding, "_records", fail)
    found = await asyncio.to_thread(read_all, served.url, 0)
    assert found == {key: list(range(RECORDS + 10)) for key in range(2)}
    assert 1 <= len(stored_answers) <= 3, "fetches that were under way, then no more"
