"""The life of a consumer instance: its states, and how many a group may have."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest
from tests.http.conftest import SETTINGS
from tests.http.kafka_rest.instance_calls import ONE, create, done, get, parts, poll, post
from tests.http.kafka_rest.rest import refused

from tidelog.services.settings.settings import Settings

pytestmark = pytest.mark.usefixtures("topic")


async def test_subscriptions_are_read_replaced_and_deleted(client: httpx.AsyncClient) -> None:
    await create(client)
    path = f"{ONE}/subscription"
    assert await get(client, path) == {"topics": []}
    await done(client, path, {"topics": ["other"]})
    await done(client, path, {"topics": ["t"]})
    assert await get(client, path) == {"topics": ["t"]}
    assert len(await poll(client)) == 10
    assert (await client.delete(path)).status_code == 204
    assert await get(client, path) == {"topics": []}
    assert await get(client, f"{ONE}/assignments") == parts()
    assert await poll(client) == []


async def test_what_excludes_each_other(client: httpx.AsyncClient) -> None:
    await create(client)
    path = f"{ONE}/subscription"
    refused(await post(client, path, {"topics": ["t"], "topic_pattern": "t"}), 409, 40903)
    await done(client, path, {"topics": ["t"]})
    refused(await post(client, path, {"topic_pattern": "t"}), 409, 40901)
    refused(await post(client, f"{ONE}/assignments", parts(0)), 409, 40903)
    assert (await client.delete(path)).status_code == 204
    await done(client, f"{ONE}/assignments", parts(0))
    refused(await post(client, path, {"topics": ["t"]}), 409, 40903)
    assert await get(client, f"{ONE}/assignments") == parts(0)


async def test_an_instance_exists_once(client: httpx.AsyncClient) -> None:
    await create(client)
    refused(await post(client, "/consumers/g", {"name": "i"}), 409, 40902)
    await create(client, "other-group")
    answer = await post(client, "/consumers/g", {})
    assert answer.json()["instance_id"].startswith("rest-")


class TestBounds:
    @pytest.fixture
    def settings(self) -> Settings:
        return replace(SETTINGS, group_instances_max=2)

    async def test_further_instances_of_a_group_are_refused(self, client: httpx.AsyncClient) -> None:
        for name in "ab":
            await create(client, name=name)
        answer = await post(client, "/consumers/g", {"name": "c"})
        refused(answer, 503, 50302)
        assert int(answer.headers["retry-after"]) > 0
        await create(client, "other", name="c")
        assert (await client.delete("/consumers/g/instances/a")).status_code == 204
        await create(client, name="c")
