"""Staged objects: create, read, list, delete, and produces that name a part of one."""

from __future__ import annotations

import zlib
from typing import Any

import httpx
import pytest
from tests.http.requests import ARROW, arrow_stream, offsets_of, problem, values_table
from tests.peers.listening_broker import listening_broker

from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.api.staging import StagedRef
from tidelog.services.broker.local_broker import LocalBroker

BYTES = "application/octet-stream"
STAGED = "application/vnd.tidelog.staged+json"
AREA = "/v1/staging/orders"


async def stage(client: httpx.AsyncClient, batch: int, name: str, data: bytes) -> httpx.Response:
    return await client.put(f"{AREA}/{batch}/{name}", content=data, headers={"Content-Type": BYTES})


def part(data: bytes, count: int, **changes: Any) -> dict[str, Any]:
    """The part of object `0-a.arrow` of batch 7 that is all of `data`."""
    whole = {"start": 0, "length": len(data), "checksum": zlib.crc32(data), "records": count, "age_ms": 0}
    return {"sink": "orders", "batch": 7, "name": "0-a.arrow", **whole, **changes}


async def publish(client: httpx.AsyncClient, body: dict[str, Any], sequence: int = 0) -> httpx.Response:
    headers = {"Tidelog-Producer-Id": "sink-orders", "Tidelog-Producer-Epoch": "0", "Tidelog-Sequence": str(sequence)}
    target = "/v1/topics/web/partitions/0/records"
    return await client.post(target, json=body, headers={**headers, "Content-Type": STAGED})


@pytest.fixture
async def topic(client: httpx.AsyncClient) -> None:
    await client.post("/v1/topics", json={"name": "web", "partitions": 2})


async def test_an_object_is_created_once_and_read_as_it_was_written(client: httpx.AsyncClient) -> None:
    assert (await stage(client, 7, "0-a.arrow", b"first")).status_code == 201
    problem(await stage(client, 7, "0-a.arrow", b"second"), 409, "already_exists")
    assert (await client.get(f"{AREA}/7/0-a.arrow")).content == b"first"
    problem(await client.get(f"{AREA}/8/0-a.arrow"), 404, "not_found")


async def test_objects_are_listed_by_batch_and_name_and_deleted_up_to_a_place(client: httpx.AsyncClient) -> None:
    for batch in (10, 9):
        for name in ("committed", "0-b.arrow", "0-a.arrow"):
            await stage(client, batch, name, b"x" * batch)
    page = (await client.get(AREA)).json()
    places = [(each["batch"], each["name"]) for each in page["objects"]]
    assert places == [(batch, name) for batch in (9, 10) for name in ("0-a.arrow", "0-b.arrow", "committed")]
    assert [each["size"] for each in page["objects"]] == [9, 9, 9, 10, 10, 10]
    later = (await client.get(AREA, params={"after": f"{9:020d}/committed"})).json()
    assert [each["batch"] for each in later["objects"]] == [10, 10, 10]

    answer = await client.delete(AREA, params={"before": f"{10:020d}/committed"})
    assert answer.json() == {"deleted": 5}
    assert [each["name"] for each in (await client.get(AREA)).json()["objects"]] == ["committed"]
    assert (await client.delete(AREA)).json() == {"deleted": 1}
    assert (await client.delete(AREA)).json() == {"deleted": 0}


async def test_pages_continue_and_a_deletion_takes_more_than_one_page(
    broker: LocalBroker, client: httpx.AsyncClient
) -> None:
    for number in range(1_003):
        await broker.staging.create(RequestContext("id"), StagedRef("orders", 7, f"{number:05d}"), b"")
    page = (await client.get(AREA)).json()
    assert len(page["objects"]) == 1_000
    last = (await client.get(AREA, params={"after": page["next"]})).json()
    assert [each["name"] for each in last["objects"]] == ["01000", "01001", "01002"]
    assert "next" not in last
    assert (await client.delete(AREA)).json() == {"deleted": 1_003}


@pytest.mark.parametrize("path", ["/v1/staging/or.ders/7/a", f"{AREA}/-1/a", f"{AREA}/7/A", f"{AREA}/7/a.json"])
async def test_no_name_leads_to_another_object_of_the_bucket(client: httpx.AsyncClient, path: str) -> None:
    for answer in (await client.get(path), await client.put(path, content=b"x", headers={"Content-Type": BYTES})):
        assert answer.status_code in (400, 422)


async def test_an_object_above_the_bound_is_refused(client: httpx.AsyncClient) -> None:
    problem(await stage(client, 7, "0-a.arrow", bytes((1 << 20) + 1)), 413, "too_large")


@pytest.mark.usefixtures("topic")
async def test_a_part_is_appended_once_however_often_it_is_published(client: httpx.AsyncClient) -> None:
    first, second = (arrow_stream(values_table([value, value])) for value in (b"one", b"two"))
    await stage(client, 7, "0-a.arrow", first + second)
    parts = [part(first, 2), part(second, 2, start=len(first))]
    for _ in range(2):
        for number, body in enumerate(parts):
            answer = await publish(client, body, sequence=2 * number)
            assert answer.status_code == 200, answer.text
            assert answer.json()["partitions"][0]["base_offset"] == 2 * number
    assert await offsets_of(client, "web") == {0: 4, 1: 0}
    fetched = (await client.get("/v1/topics/web/partitions/0/records")).json()
    assert [record["value"] for record in fetched["records"]] == ["one", "one", "two", "two"]


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"checksum": 1}, 422),
        ({"length": 10**9}, 413),
        ({"start": 2**62}, 422),
        ({"start": -1}, 422),
        ({"name": "0-b.arrow"}, 404),
        ({"name": "../../meta/0"}, 422),
        ({"sink": "../x"}, 422),
        ({"records": 3}, 422),
        ({"more": 1}, 422),
    ],
)
async def test_a_wrong_part_is_refused_and_nothing_is_appended(
    client: httpx.AsyncClient, changes: dict[str, Any], status: int
) -> None:
    data = arrow_stream(values_table([b"one", b"two"]))
    await stage(client, 7, "0-a.arrow", data)
    assert (await publish(client, part(data, 2, **changes))).status_code == status
    assert await offsets_of(client, "web") == {0: 0, 1: 0}


@pytest.mark.usefixtures("topic")
async def test_staged_bytes_that_are_no_arrow_stream_are_refused(client: httpx.AsyncClient) -> None:
    await stage(client, 7, "0-a.arrow", b"no arrow")
    problem(await publish(client, part(b"no arrow", 1)), 400, "invalid")


@pytest.mark.usefixtures("topic")
async def test_staged_records_need_a_partition_and_a_producer(client: httpx.AsyncClient) -> None:
    data = arrow_stream(values_table([b"one"]))
    await stage(client, 7, "0-a.arrow", data)
    for path in ("records", "partitions/0/records"):
        answer = await client.post(f"/v1/topics/web/{path}", json=part(data, 1), headers={"Content-Type": STAGED})
        assert answer.status_code in (400, 415)


@pytest.mark.usefixtures("topic")
async def test_an_old_attempt_of_a_producer_that_may_be_forgotten_is_refused(client: httpx.AsyncClient) -> None:
    data, day_ms = arrow_stream(values_table([b"one"])), 86_400_000
    await stage(client, 7, "0-a.arrow", data)
    problem(await publish(client, part(data, 1, age_ms=day_ms)), 409, "conflict")
    assert (await publish(client, part(data, 1))).status_code == 200
    again = await publish(client, part(data, 1, age_ms=day_ms))
    assert again.json()["partitions"][0]["duplicate"], "the broker knows the producer, so no age is too old"


@pytest.mark.usefixtures("topic")
async def test_an_arrow_body_is_still_an_arrow_body(client: httpx.AsyncClient) -> None:
    data = arrow_stream(values_table([b"one"]))
    answer = await client.post("/v1/topics/web/partitions/0/records", content=data, headers={"Content-Type": ARROW})
    assert answer.status_code == 200


async def test_a_broker_forwards_a_produce_of_staged_records_and_the_leader_reads_them() -> None:
    data = arrow_stream(values_table([b"one", b"two"]))
    topic = {"name": "web", "partitions": 1}
    async with listening_broker() as leader, listening_broker() as asked:
        for broker in (leader, asked):
            await broker.http.post("/v1/topics", json=topic)
        asked.broker.led_by(leader.url)
        assert (await stage(leader.http, 7, "0-a.arrow", data)).status_code == 201
        for _ in range(2):
            answer = await publish(asked.http, part(data, 2))
            assert answer.json()["partitions"][0]["base_offset"] == 0
        assert answer.headers["tidelog-leader"] == leader.url
        assert await offsets_of(leader.http, "web") == {0: 2}
