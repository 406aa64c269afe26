"""The bound on the number of connections, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from tests.http.conftest import SETTINGS, Served
from tests.http.sockets import Wire, connected, happens, head

from tidelog.services.http.listener.connection_bounds import SPARE_MAX
from tidelog.services.settings.settings import Settings

CONNECTIONS_MAX = 3


@pytest.fixture
def settings() -> Settings:
    return replace(SETTINGS, connections_max=CONNECTIONS_MAX)


@pytest.fixture
async def all_taken(served: Served) -> AsyncIterator[list[Wire]]:
    """Open the largest allowed number of connections; each has received an answer."""
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(connected(served)) for _ in range(CONNECTIONS_MAX)]
        for wire in wires:
            await wire.send(head("GET", "/v1/cluster"))
            assert (await wire.answer()).status == 200
        yield wires


async def test_a_connection_beyond_the_bound_gets_a_refusal_and_is_closed(
    served: Served, all_taken: list[Wire]
) -> None:
    async with connected(served) as wire:
        await wire.send(head("GET", "/v1/cluster"))
        answer = await wire.answer()
        assert (answer.status, answer.problem["code"]) == (503, "overloaded")
        assert "connections.max" in answer.problem["detail"]
        assert answer.headers["retry-after"] == "5"
        assert answer.headers["connection"] == "close"
        assert await wire.closed() == b""
    await all_taken[0].send(head("GET", "/v1/cluster"))
    assert (await all_taken[0].answer()).status == 200, "those within the bound go on"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_requests_about_the_broker_itself_are_answered_beyond_the_bound(
    served: Served, all_taken: list[Wire], path: str
) -> None:
    async with connected(served) as wire:
        await wire.send(head("GET", path))
        answer = await wire.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")


async def test_a_connection_that_ends_makes_room(served: Served, all_taken: list[Wire]) -> None:
    all_taken[0].writer.close()
    await happens(lambda: len(served.server.server_state.connections) < CONNECTIONS_MAX)
    async with connected(served) as wire:
        await wire.send(head("GET", "/v1/cluster"))
        assert (await wire.answer()).status == 200


async def test_far_beyond_the_bound_nobody_is_answered(served: Served, all_taken: list[Wire]) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(SPARE_MAX):
            await stack.enter_async_context(connected(served))
        await happens(lambda: len(served.server.server_state.connections) == CONNECTIONS_MAX + SPARE_MAX)
        last = await stack.enter_async_context(connected(served))
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await last.reader.readexactly(1)
