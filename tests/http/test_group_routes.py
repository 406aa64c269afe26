"""``/v1/groups``: members by poll and by heartbeat, offsets, seek, lag; misuse."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from tests.http.conftest import Served
from tests.http.requests import ARROW, NDJSON, problem
from tests.http.sockets import WAIT_S, connected, happens

from tidelog.storage.runtime import SystemClock

G = "/v1/groups/billing"


@pytest.fixture
async def topic(live: httpx.AsyncClient) -> httpx.AsyncClient:
    """A topic `web` of two partitions."""
    await live.post("/v1/topics", json={"name": "web", "partitions": 2})
    return live


async def produce(live: httpx.AsyncClient, partition: int, *values: str, timestamp: int | None = None) -> None:
    records = [{"value": value, **({"timestamp": timestamp} if timestamp else {})} for value in values]
    answer = await live.post(f"/v1/topics/web/partitions/{partition}/records", json={"records": records})
    assert answer.status_code == 200, answer.text


async def poll(live: httpx.AsyncClient, last: dict[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    """One poll, which repeats what a client repeats."""
    if last:
        members = {name: last[name] for name in ("member_id", "member_epoch")} | members
        members.setdefault("offsets", last.get("offsets", []))
    else:
        members = {"topics": ["web"], "from_position": "earliest", "wait_ms": 5_000} | members
    answer = await live.post(f"{G}/poll", json=members)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def joined(live: httpx.AsyncClient) -> dict[str, Any]:
    """The answer to the polls of a member until it has all partitions."""
    last = await poll(live, wait_ms=50)
    async with asyncio.timeout(WAIT_S):
        while len(last.get("offsets", [])) < 2:
            last = await poll(live, last, wait_ms=50)
    return last


def values(answer: dict[str, Any]) -> list[str]:
    return [record["value"] for record in answer.get("records", [])]


async def committed(live: httpx.AsyncClient) -> dict[int, int]:
    answer = await live.post(f"{G}/offsets", json={})
    return {each["partition"]: each["offset"] for each in answer.json()["offsets"]}


async def test_three_polls_join_read_and_commit(topic: httpx.AsyncClient) -> None:
    await produce(topic, 1, "one")
    first = await poll(topic)
    assert values(first) == ["one"]
    assert first["assignment"] == [{"topic": "web", "partitions": [0, 1]}]
    assert first["session_timeout_ms"] == 45_000
    await produce(topic, 0, "two")
    second = await poll(topic, first, wait_ms=5_000)
    assert values(second) == ["two"]
    assert await committed(topic) == {0: 0, 1: 1}
    left = await poll(topic, second, leave=True)
    assert left["assignment"] == []
    assert await committed(topic) == {0: 1, 1: 1}
    described = (await topic.get(G)).json()
    assert (described["state"], described["members"]) == ("Empty", [])


@pytest.mark.parametrize("media", [NDJSON, ARROW])
async def test_a_poll_as_lines_and_as_arrow(topic: httpx.AsyncClient, media: str) -> None:
    import pyarrow as pa

    await produce(topic, 1, "one", "two")
    asked = {"topics": ["web"], "from_position": "earliest", "wait_ms": 5_000}
    answer = await topic.post(f"{G}/poll", json=asked, headers={"accept": media})
    assert answer.headers["content-type"].startswith(media)
    if media == NDJSON:
        *records, state = map(json.loads, answer.text.splitlines())
        read = [(record["partition"], record["value"]) for record in records]
    else:
        with pa.ipc.open_stream(answer.content) as reader:
            state = json.loads(reader.schema.metadata[b"tidelog"])
            read = [(row["partition"], row["value"].decode()) for batch in reader for row in batch.to_pylist()]
    assert read == [(1, "one"), (1, "two")]
    assert {each["partition"]: each["offset"] for each in state["offsets"]} == {0: 0, 1: 2}
    assert "records" not in state


async def test_a_group_is_listed_and_described_with_its_clients(topic: httpx.AsyncClient) -> None:
    last = await joined(topic)
    listed = (await topic.get("/v1/groups")).json()
    assert listed == {"groups": [{"group": "billing", "kind": "consumer"}]}
    described = (await topic.get(G)).json()
    (member,) = described["members"]
    assert (described["kind"], member["member_id"]) == ("consumer", last["member_id"])
    assert (member["client_host"], member["topics"]) == ("127.0.0.1", ["web"])
    assert member["assignment"] == [{"topic": "web", "partitions": [0, 1]}]
    problem(await topic.get("/v1/groups/unknown"), 404, "not_found")


async def test_the_cluster_shows_how_many_groups_and_members_a_broker_coordinates(topic: httpx.AsyncClient) -> None:
    async def size() -> tuple[int, int]:
        described = (await topic.get("/v1/cluster")).json()
        return described["groups"], described["group_members"]

    assert await size() == (0, 0)
    await joined(topic)
    clock = SystemClock()
    async with asyncio.timeout(10):
        while await size() != (1, 1):
            await clock.sleep(0.05)


async def test_groups_are_listed_in_pages(topic: httpx.AsyncClient) -> None:
    offsets = {"offsets": [{"topic": "web", "partition": 0, "offset": 0}]}
    for name in ("a", "b", "c"):
        assert (await topic.post(f"/v1/groups/{name}/commit", json=offsets)).status_code == 200
    first = (await topic.get("/v1/groups?limit=2")).json()
    assert [each["group"] for each in first["groups"]] == ["a", "b"]
    rest = (await topic.get(f"/v1/groups?limit=2&after={first['next']}")).json()
    assert [each["group"] for each in rest["groups"]] == ["c"]
    assert "next" not in rest
    assert (await topic.delete("/v1/groups/a")).status_code == 204
    problem(await topic.delete("/v1/groups/a"), 404, "not_found")


async def test_a_member_by_heartbeats(topic: httpx.AsyncClient) -> None:
    answer = (await topic.post(f"{G}/heartbeat", json={"topics": ["web"], "session_timeout_ms": 6_000})).json()
    member = {"member_id": answer["member_id"], "member_epoch": answer["member_epoch"]}
    async with asyncio.timeout(WAIT_S):
        while not answer["assignment"]:
            answer = (await topic.post(f"{G}/heartbeat", json=member)).json()
    member["member_epoch"] = answer["member_epoch"]
    assert (answer["session_timeout_ms"], answer["assignment"]) == (6_000, [{"topic": "web", "partitions": [0, 1]}])
    commit = {**member, "offsets": [{"topic": "web", "partition": 0, "offset": 5, "metadata": "here"}]}
    assert (await topic.post(f"{G}/commit", json=commit)).json() == {}
    old = {**commit, "member_epoch": member["member_epoch"] - 1}
    problem(await topic.post(f"{G}/commit", json=old), 409, "stale_member_epoch")
    problem(await topic.post(f"{G}/commit", json={"offsets": commit["offsets"]}), 409, "group_not_empty")
    problem(await topic.post(f"{G}/heartbeat", json={**member, "member_epoch": 99}), 409, "member_fenced")
    problem(await topic.post(f"{G}/heartbeat", json={**member, "member_id": "nobody"}), 404, "unknown_member")
    problem(await topic.delete(G), 409, "group_not_empty")
    problem(await topic.post(f"{G}/seek", json={"to": "latest"}), 409, "group_not_empty")
    preview = (await topic.post(f"{G}/seek", json={"to": "latest", "dry_run": True})).json()
    assert preview["partitions"] == [{"topic": "web", "partition": 0, "before": 5, "after": 0}]
    assert (await topic.post(f"{G}/heartbeat", json={**member, "member_epoch": -1})).status_code == 200
    (stored,) = (await topic.post(f"{G}/offsets", json={})).json()["offsets"]
    assert (stored["offset"], stored["metadata"]) == (5, "here")
    assert (
        await topic.post(f"{G}/delete-offsets", json={"partitions": [{"topic": "web", "partitions": [0]}]})
    ).json() == {}
    assert await committed(topic) == {}


@pytest.mark.parametrize(
    ("to", "after"),
    [
        ("earliest", {0: 0, 1: 0}),
        ("latest", {0: 4, 1: 4}),
        ("3", {0: 3, 1: 3}),
        ("99", {0: 4, 1: 4}),
        ("-1", {0: 1, 1: 1}),
        ("+1", {0: 3, 1: 3}),
        ("-50", {0: 0, 1: 0}),
        ("@2500", {0: 2, 1: 2}),
        ("@1970-01-01T00:00:03Z", {0: 2, 1: 2}),
        ("-1h", {0: 4, 1: 4}),
        ("-5000w", {0: 0, 1: 0}),
    ],
)
async def test_seek_moves_committed_offsets(topic: httpx.AsyncClient, to: str, after: dict[int, int]) -> None:
    at = {0: 2, 1: 2}
    for partition in range(2):
        for number in range(4):
            await produce(topic, partition, "x", timestamp=1_000 * (number + 1))
    offsets = [{"topic": "web", "partition": partition, "offset": offset} for partition, offset in at.items()]
    await topic.post(f"{G}/commit", json={"offsets": offsets})
    moved = {number: offset for number, offset in after.items() if offset != at[number]}
    for dry_run in (True, False):
        answer = await topic.post(f"{G}/seek", json={"to": to, "dry_run": dry_run})
        assert answer.status_code == 200, answer.text
        assert {each["partition"]: each["after"] for each in answer.json()["partitions"]} == moved
        assert await committed(topic) == (at if dry_run else after)


async def test_seek_of_topics_makes_a_group_and_misuse_is_refused(topic: httpx.AsyncClient) -> None:
    await produce(topic, 0, "x")
    problem(await topic.post(f"{G}/seek", json={"to": "latest"}), 422, "invalid")
    problem(await topic.post(f"{G}/seek", json={"to": "+1", "topics": ["web"]}), 422, "invalid")
    problem(await topic.post(f"{G}/seek", json={"to": "soon", "topics": ["web"]}), 400, "invalid")
    problem(await topic.post(f"{G}/seek", json={"to": "latest", "topics": ["none"]}), 404, "not_found")
    unknown = [{"topic": "web", "partitions": [7]}]
    problem(await topic.post(f"{G}/seek", json={"to": "latest", "partitions": unknown}), 404, "not_found")
    many = [{"topic": "web", "partitions": list(range(10_001))}]
    problem(await topic.post(f"{G}/seek", json={"to": "latest", "partitions": many}), 422, "invalid")
    assert await committed(topic) == {}
    made = (await topic.post(f"{G}/seek", json={"to": "latest", "topics": ["web"]})).json()
    assert made["partitions"][0] == {"topic": "web", "partition": 0, "before": None, "after": 1}
    assert await committed(topic) == {0: 1, 1: 0}


async def test_lag_in_records_and_in_time(topic: httpx.AsyncClient) -> None:
    problem(await topic.get(f"{G}/lag"), 404, "not_found")
    for number in range(3):
        await produce(topic, 0, "x", timestamp=1_000 * (number + 1))
    await topic.post(f"{G}/commit", json={"offsets": [{"topic": "web", "partition": 0, "offset": 1}]})
    lag = (await topic.get(f"{G}/lag")).json()
    (part,) = lag["partitions"]
    assert (part["committed"], part["high_watermark"], part["lag"], lag["lag"]) == (1, 3, 2, 2)
    assert part["lag_ms"] == lag["lag_ms"] > 1_600_000_000_000, "the next record is of 1970"
    (plain,) = (await topic.get(f"{G}/lag?times=false")).json()["partitions"]
    assert (plain["lag"], plain["lag_ms"]) == (2, None)
    await topic.post(f"{G}/seek", json={"to": "latest"})
    lag = (await topic.get(f"{G}/lag")).json()
    assert (lag["lag"], lag["lag_ms"], lag["partitions"][0]["lag_ms"]) == (0, 0, 0)
    last = await poll(topic, wait_ms=500)
    lag = (await topic.get(f"{G}/lag")).json()
    assert [(each["partition"], each["member_id"]) for each in lag["partitions"]] == [
        (0, last["member_id"]),
        (1, last["member_id"]),
    ]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 422, "invalid"),
        ({"topics": ["web"], "from_position": "soon"}, 422, "invalid"),
        ({"topics": ["web"], "wait": 1}, 422, "invalid"),
        ({"topics": "web"}, 422, "invalid"),
        ({"topic_pattern": "("}, 422, "invalid"),
        ({"topics": ["web"], "session_timeout_ms": 1}, 422, "invalid"),
        ({"topics": ["web"], "assignor": "none"}, 422, "invalid"),
        ({"member_id": "nobody", "member_epoch": 3}, 404, "unknown_member"),
        ({"topics": ["web"], "offsets": [{"topic": "web", "partition": 0, "offset": 1}]}, 404, "unknown_member"),
        ({"topics": ["web"], "offsets": [{"topic": "web", "partition": 0, "offset": 2**63}]}, 422, "invalid"),
        ({"topics": ["web"], "member_id": "x" * 300}, 422, "invalid"),
        ({"topics": [f"t{n}" for n in range(10_001)]}, 422, "invalid"),
        ({"leave": True, "member_id": "nobody"}, 404, "unknown_member"),
    ],
)
async def test_a_poll_that_is_not_allowed_is_refused(
    topic: httpx.AsyncClient, body: dict[str, Any], status: int, code: str
) -> None:
    problem(await topic.post(f"{G}/poll", json=body), status, code)


async def test_names_and_bodies_that_cannot_be_are_refused(topic: httpx.AsyncClient) -> None:
    problem(await topic.get(f"/v1/groups/{'x' * 300}"), 422, "invalid")
    problem(await topic.get("/v1/groups?limit=x"), 400, "invalid")
    problem(await topic.get(f"{G}?limit=1"), 400, "invalid")
    problem(
        await topic.post(f"{G}/commit", json={"offsets": [{"topic": "none", "partition": 0, "offset": 1}]}),
        404,
        "not_found",
    )
    problem(await topic.post(f"{G}/commit", json={}), 422, "invalid")
    json_type = {"content-type": "application/json"}
    for call in ("heartbeat", "commit", "offsets", "delete-offsets", "seek", "poll"):
        problem(await topic.post(f"{G}/{call}", content=b"{", headers=json_type), 400, "invalid")
        problem(await topic.post(f"{G}/{call}", content=b"[]", headers=json_type), 422, "invalid")
        problem(await topic.post(f"{G}/{call}", content=b"x"), 415, "unsupported_media_type")


async def test_a_huge_list_is_refused_before_it_is_parsed(topic: httpx.AsyncClient) -> None:
    offsets = [{"topic": "web", "partition": 0, "offset": 1}] * 30_000
    for path in (f"{G}/commit", f"{G}/poll", f"{G}/heartbeat", "/v1/fetch"):
        refusal = problem(await topic.post(path, json={"offsets": offsets}), 413, "too_large")
        assert "fewer partitions" in refusal["detail"]


async def test_a_client_that_leaves_ends_its_poll(served: Served, topic: httpx.AsyncClient) -> None:
    last = await joined(topic)
    members = {name: last[name] for name in ("member_id", "member_epoch", "offsets")} | {"wait_ms": 10_000}
    body = json.dumps(members).encode()
    head = f"POST {G}/poll HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    async with connected(served) as wire:
        await wire.send(f"{head}\r\n\r\n".encode() + body)
        await happens(lambda: served.service.waiting.count == 1)
    await happens(lambda: served.service.waiting.count == 0)
    await produce(topic, 0, "for the next poll")
    assert values(await poll(topic, last, wait_ms=5_000)) == ["for the next poll"]


async def test_a_stopping_broker_ends_a_poll_so_that_it_can_be_repeated(
    served: Served, topic: httpx.AsyncClient
) -> None:
    last = await joined(topic)
    members = {name: last[name] for name in ("member_id", "member_epoch", "offsets")} | {"wait_ms": 10_000}
    waiting = asyncio.ensure_future(topic.post(f"{G}/poll", json=members))
    await happens(lambda: served.service.waiting.count == 1)
    served.server.drain()
    assert problem(await waiting, 503, "overloaded")["detail"].startswith("the broker is stopping")
