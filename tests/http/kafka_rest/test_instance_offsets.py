"""Commits of consumer instances, and where their successors begin."""

from __future__ import annotations

import httpx
import pytest
from tests.http.kafka_rest.instance_calls import OFFSETS, ONE, create, done, get, parts, poll, post, values
from tests.http.kafka_rest.rest import JSON, MANAGEMENT, placed, refused

pytestmark = pytest.mark.usefixtures("topic")


async def committed(client: httpx.AsyncClient, path: str = ONE) -> dict[int, int]:
    found = await get(client, f"{path}/offsets", parts(0, 1))
    return {one["partition"]: one["offset"] for one in found["offsets"]}


async def test_a_commit_stores_the_next_offset_and_its_metadata(client: httpx.AsyncClient) -> None:
    await create(client)
    await done(client, f"{ONE}/assignments", parts(0, 1))
    offsets = [{"topic": "t", "partition": "0", "offset": "2", "metadata": "m"}]
    await done(client, OFFSETS, {"offsets": offsets})
    found = await get(client, OFFSETS, parts(0, 1))
    assert found == {"offsets": [{"topic": "t", "partition": 0, "offset": 3, "metadata": "m"}]}


@pytest.mark.parametrize("body", [b"", b"{}", b'{"offsets":null}'])
async def test_an_empty_commit_stores_what_was_read(client: httpx.AsyncClient, body: bytes) -> None:
    await create(client, **{"auto.commit.enable": "false"})
    await done(client, f"{ONE}/subscription", {"topics": ["t"]})
    await poll(client)
    await poll(client)
    assert await committed(client) == {}
    headers = {"content-type": MANAGEMENT} if body else {}
    assert (await client.post(OFFSETS, content=body, headers=headers)).status_code == 204
    assert await committed(client) == {0: 5, 1: 5}
    assert (await client.post(OFFSETS, content=body, headers=headers)).status_code == 204


async def test_the_next_read_commits_the_one_before(client: httpx.AsyncClient) -> None:
    await create(client)
    await done(client, f"{ONE}/subscription", {"topics": ["t"]})
    await poll(client)
    assert await committed(client) == {}
    await poll(client)
    assert await committed(client) == {0: 5, 1: 5}


async def test_a_deleted_instance_commits_what_it_read_and_its_successor_continues(client: httpx.AsyncClient) -> None:
    await create(client)
    await done(client, f"{ONE}/subscription", {"topics": ["t"]})
    assert len(await poll(client)) == 10
    assert (await client.delete(ONE)).status_code == 204
    refused(await client.delete(ONE), 404, 40403)
    await placed(client, "/topics/t/partitions/0", '{"records":[{"value":"next"}]}')
    await create(client)
    await done(client, f"{ONE}/subscription", {"topics": ["t"]})
    assert values(await poll(client)) == ["next"]


async def test_a_deleted_subscription_commits_what_was_read(client: httpx.AsyncClient) -> None:
    await create(client)
    await done(client, f"{ONE}/subscription", {"topics": ["t"]})
    await poll(client)
    assert (await client.delete(f"{ONE}/subscription")).status_code == 204
    assert await committed(client) == {0: 5, 1: 5}
    await done(client, f"{ONE}/subscription", {"topics": ["t"]})
    assert await poll(client) == []


async def test_without_a_commit_a_successor_reads_again(client: httpx.AsyncClient) -> None:
    for _ in "ab":
        await create(client, **{"auto.commit.enable": False})
        await done(client, f"{ONE}/subscription", {"topics": ["t"]})
        assert len(await poll(client)) == 10
        assert (await client.delete(ONE)).status_code == 204


async def test_a_commit_of_a_partition_of_another_member_is_refused(client: httpx.AsyncClient) -> None:
    await create(client)
    await done(client, f"{ONE}/subscription", {"topics": ["t"]})
    await poll(client)
    other = await create(client, name="other")
    await done(client, f"{other}/assignments", parts(0))
    offset = {"offsets": [{"topic": "t", "partition": 0, "offset": 1}]}
    refused(await post(client, f"{other}/offsets", offset), 409, 40903)


async def test_reset_none_needs_a_committed_offset(client: httpx.AsyncClient) -> None:
    await create(client, **{"auto.offset.reset": "none"})
    await done(client, f"{ONE}/assignments", parts(0))
    refused(await client.get(f"{ONE}/records?timeout=0", headers={"accept": JSON}), 500, 50002)
    await done(client, OFFSETS, {"offsets": [{"topic": "t", "partition": 0, "offset": 2}]})
    assert values(await poll(client)) == [3, 4]
