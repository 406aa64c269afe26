"""A page whose answer is lost is read again; one that was sent is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from tests.http.kafka_rest.instance_calls import ONE, create, done, parts, poll, values
from tests.http.kafka_rest.rest import JSON, placed, read
from tests.http.sockets import Listening, connected, head

from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.http.app import create_app
from tidelog.services.http.kafka_rest.instances import instance_reads
from tidelog.services.http.kafka_rest.instances.page_sending import PageAnswer, Senders
from tidelog.services.settings.settings import Settings
from tidelog.storage.runtime import Runtime

BODY = '{"records":[{"value":1},{"value":2},{"value":3}]}'


@pytest.fixture
async def next_process(broker: LocalBroker, settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """The same broker in a later process."""
    transport = httpx.ASGITransport(create_app(broker, settings, Runtime()))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        yield http


@pytest.fixture(autouse=True)
async def instance(client: httpx.AsyncClient) -> None:
    await client.post("/v1/topics", json={"name": "t", "partitions": 1})
    await placed(client, "/topics/t", BODY)
    await create(client)
    await done(client, f"{ONE}/assignments", parts(0))


async def dies(*_: object) -> None:
    raise RuntimeError("the process ends before it sends")


async def test_a_page_of_a_process_that_died_is_read_again(
    client: httpx.AsyncClient, next_process: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(PageAnswer, "__call__", dies)
        with pytest.raises(RuntimeError):
            await poll(client)
    assert values(await poll(next_process)) == [1, 2, 3]
    assert await poll(next_process) == []


async def test_a_page_that_a_living_broker_does_not_send_is_read_again_through_another(
    client: httpx.AsyncClient, next_process: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is dead, and its lease has not ended yet."""
    monkeypatch.setattr(Senders, "is_gone", lambda *_: False)
    monkeypatch.setattr(instance_reads, "SETTLED_MS", 50)
    with monkeypatch.context() as patch:
        patch.setattr(PageAnswer, "__call__", dies)
        with pytest.raises(RuntimeError):
            await poll(client)
    assert await poll(client) == [], "this process may still send it"
    with monkeypatch.context() as patch:
        patch.setattr(PageAnswer, "__call__", dies)
        with pytest.raises(RuntimeError):
            await poll(next_process)
    assert values(await poll(client)) == [1, 2, 3]


async def test_a_page_that_was_sent_is_not_read_again_by_a_later_process(
    client: httpx.AsyncClient, next_process: httpx.AsyncClient
) -> None:
    assert values(await poll(client)) == [1, 2, 3]
    assert await poll(next_process) == []


async def test_a_lost_page_is_not_committed_when_the_instance_is_deleted(
    client: httpx.AsyncClient, next_process: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(PageAnswer, "__call__", dies)
        with pytest.raises(RuntimeError):
            await poll(client)
    assert (await next_process.delete(ONE)).status_code == 204
    await create(next_process)
    await done(next_process, f"{ONE}/assignments", parts(0))
    assert values(await poll(next_process)) == [1, 2, 3]


async def test_a_client_that_left_while_it_waited_misses_nothing(served: Listening, client: httpx.AsyncClient) -> None:
    assert len(await poll(client)) == 3
    async with connected(served) as wire:
        await wire.send(head("GET", f"{ONE}/records?timeout=9000", Accept=JSON))
        await asyncio.sleep(0.1)
    await placed(client, "/topics/t", '{"records":[{"value":4}]}')
    async with asyncio.timeout(5):
        seen: list[object] = []
        while not seen:
            seen = values(await poll(client, timeout=100))
    assert seen == [4]
    assert [record["value"] for record in await read(client, "/topics/t/partitions/0/records")] == [1, 2, 3, 4]
