"""Small requests that arrive together are appended together, and each client gets only its own answer."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from tests.http.kafka_rest.rest import log_values, placed, produce

from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.http.kafka_rest import gathered_produce


async def test_requests_that_arrive_together_are_one_append(
    client: httpx.AsyncClient, broker: LocalBroker, web: dict[int, int]
) -> None:
    calls = []
    produce_now = broker.produce

    async def counted(*arguments: object) -> object:
        calls.append(arguments)
        return await produce_now(*arguments)  # type: ignore[arg-type]

    broker.produce = counted  # type: ignore[method-assign,assignment]
    bodies = [f'{{"records":[{{"value":{n}}},{{"key":{n},"value":{n}}}]}}' for n in range(20)]
    places = await asyncio.gather(*(placed(client, "/topics/web/partitions/1", body) for body in bodies))
    assert len(calls) < 10
    values = await log_values(client, "web", 1)
    for n, [(_, first), (_, second)] in enumerate(places):
        assert second == first + 1
        assert values[first] == values[second] == str(n)
    assert sorted(place for pair in places for place in pair) == [(1, offset) for offset in range(40)]


async def test_a_refused_request_does_not_harm_those_beside_it(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    bodies = [f'{{"records":[{{"value":{n},"partition":{9 if n == 7 else 1}}}]}}' for n in range(20)]
    answers = await asyncio.gather(*(produce(client, "/topics/web", body) for body in bodies))
    assert [answer.status_code for answer in answers] == [404 if n == 7 else 200 for n in range(20)]
    values = await log_values(client, "web", 1)
    assert sorted(map(int, values)) == [n for n in range(20) if n != 7]  # type: ignore[arg-type]


async def test_a_missing_partition_is_told_to_each(client: httpx.AsyncClient, web: dict[int, int]) -> None:
    body = '{"records":[{"value":1}]}'
    answers = await asyncio.gather(*(produce(client, "/topics/web/partitions/5", body) for _ in range(5)))
    assert [answer.json()["error_code"] for answer in answers] == [40402] * 5


async def test_clients_that_were_answered_together_are_appended_together_again(
    client: httpx.AsyncClient, broker: LocalBroker, web: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sends its next record when the former one is answered. Without a wait they would fall into two groups."""
    monkeypatch.setattr(gathered_produce, "RETURN_S", 3600.0)
    produce_now, sizes = broker.produce, []

    async def counted(*arguments: Any) -> object:
        sizes.append(arguments[2].records.num_rows)
        return await produce_now(*arguments)

    async def sends(rounds: int) -> None:
        for n in range(rounds):
            await placed(client, "/topics/web/partitions/1", f'{{"records":[{{"value":{n}}}]}}')

    broker.produce = counted  # type: ignore[method-assign,assignment]
    async with asyncio.timeout(20):
        await asyncio.gather(*(sends(10) for _ in range(8)))
    assert sum(sizes) == 80
    assert len(sizes) <= 11


async def test_a_client_that_is_alone_never_waits_for_others(
    client: httpx.AsyncClient, web: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathered_produce, "RETURN_S", 3600.0)
    async with asyncio.timeout(20):
        for n in range(20):
            await placed(client, "/topics/web/partitions/1", f'{{"records":[{{"value":{n}}}]}}')


async def test_a_call_does_not_wait_for_clients_that_do_not_return(
    client: httpx.AsyncClient, web: dict[int, int]
) -> None:
    body = '{"records":[{"value":1}]}'
    async with asyncio.timeout(20):
        await asyncio.gather(*(placed(client, "/topics/web/partitions/1", body) for _ in range(8)))
        for _ in range(3):
            await placed(client, "/topics/web/partitions/1", body)
