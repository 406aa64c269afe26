"""How many connections there are, and how long and how large a head may be, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import httpx
import pytest
from tests.http.conftest import SETTINGS, Served
from tests.http.sockets import Wire, connected, happens, head

from tidelog.services.http.connection_bounds import HEAD_BYTES_MAX, SPARE_MAX
from tidelog.services.settings import Settings

CONNECTIONS_MAX = 3
TIMEOUT_MS = 300


@pytest.fixture
def settings() -> Settings:
    return replace(SETTINGS, connections_max=CONNECTIONS_MAX, request_head_timeout_ms=TIMEOUT_MS)


@pytest.fixture
async def all_taken(served: Served) -> AsyncIterator[list[Wire]]:
    """As many connections as there may be, each of which has had an answer."""
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(connected(served)) for _ in range(CONNECTIONS_MAX)]
        for wire in wires:
            await wire.send(head("GET", "/v1/cluster"))
            assert (await wire.answer()).status == 200
        yield wires


async def ended(wire: Wire) -> bytes:
    """What comes until the broker closes the connection."""
    async with asyncio.timeout(5):
        return await wire.reader.read()


async def test_a_connection_beyond_the_bound_is_told_so_and_closed(served: Served, all_taken: list[Wire]) -> None:
    async with connected(served) as wire:
        await wire.send(head("GET", "/v1/cluster"))
        answer = await wire.answer()
        assert (answer.status, answer.problem["code"]) == (503, "overloaded")
        assert "connections.max" in answer.problem["detail"]
        assert answer.headers["retry-after"] == "5"
        assert answer.headers["connection"] == "close"
        assert await ended(wire) == b""
    await all_taken[0].send(head("GET", "/v1/cluster"))
    assert (await all_taken[0].answer()).status == 200, "those within the bound go on"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_what_asks_about_the_broker_is_answered_beyond_the_bound(
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


@pytest.mark.parametrize("begun", [b"GET", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "])
async def test_a_head_that_does_not_end_in_time_is_answered_and_closed(served: Served, begun: bytes) -> None:
    async with connected(served) as wire:
        await wire.send(begun)
        answer = await wire.answer()
        assert (answer.status, answer.problem["code"]) == (408, "request_timeout")
        assert await ended(wire) == b""


async def test_a_head_that_comes_byte_by_byte_has_no_more_time(served: Served) -> None:
    async with connected(served) as wire:
        answered = asyncio.ensure_future(wire.answer())
        sent = 0
        while not answered.done():
            await wire.send(b"GET / HTTP/1.1\r\nX: " if sent == 0 else b"x")
            sent += 1
            await asyncio.wait((answered,), timeout=TIMEOUT_MS / 1000 / 8)
        assert (await answered).status == 408
        assert sent < 24


@pytest.mark.parametrize("sent", [b"", b"\r\n"])
async def test_a_connection_that_asks_nothing_is_closed(served: Served, sent: bytes) -> None:
    async with connected(served) as wire:
        await wire.send(sent)
        assert await ended(wire) == b""


async def test_a_connection_that_had_an_answer_may_be_idle_for_longer(served: Served) -> None:
    async with connected(served) as wire:
        await wire.send(head("GET", "/healthz"))
        assert (await wire.answer()).status == 200
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2 * TIMEOUT_MS / 1000):
                await wire.reader.read(1)
        await wire.send(head("GET", "/healthz")[:-10])
        assert (await wire.answer()).status == 408, "and its next head has the same time"


async def test_a_request_that_takes_long_is_not_cut_by_the_time_for_heads(
    served: Served, live: httpx.AsyncClient
) -> None:
    await live.post("/v1/topics", json={"name": "web", "partitions": 1})
    polled = await live.get("/v1/topics/web/partitions/0/records", params={"wait_ms": 2 * TIMEOUT_MS})
    assert polled.status_code == 200


async def test_a_head_over_its_bound_is_refused(served: Served) -> None:
    async with connected(served) as wire:
        await wire.send(b"GET / HTTP/1.1\r\nX: " + b"x" * HEAD_BYTES_MAX)
        answer = await wire.answer()
        assert (answer.status, answer.problem["code"]) == (431, "too_large")
