"""Bounds on the time and size of a request's head, and on the time of its body, over real sockets."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import httpx
import pytest
from tests.http.conftest import SETTINGS, Served
from tests.http.requests import JSON
from tests.http.sockets import connected, head

from tidelog.services.http.listener.connection_bounds import HEAD_BYTES_MAX
from tidelog.services.settings.settings import Settings

TIMEOUT_MS = 400


@pytest.fixture
def settings() -> Settings:
    return replace(SETTINGS, request_head_timeout_ms=TIMEOUT_MS, request_read_timeout_ms=TIMEOUT_MS)


async def test_a_body_that_comes_too_slowly_is_answered_408(served: Served, live: httpx.AsyncClient) -> None:
    path = "/v1/topics/web/partitions/0/records"
    async with connected(served) as wire:
        await wire.send(head("POST", path, content_type=JSON, content_length="1000") + b'{"rec')
        answer = await wire.answer()
    assert (answer.status, answer.problem["code"]) == (408, "request_timeout")
    assert (await live.get("/v1/topics")).json() == {"topics": []}
    assert served.service.bodies.in_flight_bytes == 0


@pytest.mark.parametrize("begun", [b"GET", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "])
async def test_a_head_that_does_not_end_in_time_is_answered_and_closed(served: Served, begun: bytes) -> None:
    async with connected(served) as wire:
        await wire.send(begun)
        answer = await wire.answer()
        assert (answer.status, answer.problem["code"]) == (408, "request_timeout")
        assert await wire.closed() == b""


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
        assert await wire.closed() == b""


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
