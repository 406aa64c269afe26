"""Slow, broken and hostile connections harm only themselves, and nothing half sent is accepted."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import httpx
import pytest
from tests.http.conftest import SETTINGS, Served
from tests.http.requests import JSON, TEXT, offsets_of
from tests.http.sockets import WAIT_S, connected, happens, head

from tidelog.services.settings.settings import Settings

PATH = "/v1/topics/web/partitions/0/records"
BODY = b'{"records":[{"value":"x"}]}'


@pytest.fixture
def settings() -> Settings:
    """With room for many connections."""
    return replace(SETTINGS, connections_max=100)


async def test_a_client_that_leaves_in_the_middle_of_a_body_leaves_nothing(
    served: Served, live: httpx.AsyncClient
) -> None:
    async with connected(served) as wire:
        await wire.send(head("POST", PATH, content_type=JSON, content_length="1000") + BODY)
        await happens(lambda: served.service.bodies.in_flight_bytes == len(BODY))
    await happens(lambda: served.service.bodies.in_flight_bytes == 0)
    assert (await live.get("/v1/topics")).json() == {"topics": []}


async def test_a_large_body_is_refused_by_its_length_before_it_is_sent(served: Served) -> None:
    async with connected(served) as wire:
        await wire.send(head("POST", PATH, content_type=TEXT, content_length="99999999999"))
        answer = await wire.answer()
    assert (answer.status, answer.problem["limit_name"]) == (413, "request.max.bytes")


async def test_expect_100_is_not_asked_to_continue_with_a_large_body(served: Served) -> None:
    async with connected(served) as wire:
        await wire.send(head("POST", PATH, content_type=TEXT, content_length="99999999", expect="100-continue"))
        assert (await wire.answer()).status == 413
    async with connected(served) as wire:
        await wire.send(head("POST", PATH, content_type=JSON, content_length=str(len(BODY)), expect="100-continue"))
        assert b"100 Continue" in await wire.until(b"\r\n\r\n")
        await wire.send(BODY)
        assert (await wire.answer()).status == 200


async def test_a_chunked_body_without_an_end_is_refused_at_the_limit(served: Served) -> None:
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    async with connected(served) as wire:
        await wire.send(head("POST", PATH, content_type=TEXT, transfer_encoding="chunked"))
        for _ in range(17):
            await wire.send(chunk)
        answer = await wire.answer()
    assert (answer.status, answer.problem["code"]) == (413, "too_large")
    assert served.service.bodies.in_flight_bytes == 0


async def test_a_request_that_is_not_http_gets_400_and_is_closed(served: Served) -> None:
    for garbage in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 50 + b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nBad Header\x00: x\r\n\r\n",
    ):
        async with connected(served) as wire:
            await wire.send(garbage)
            assert (await wire.closed())[:10] in (b"", b"HTTP/1.1 4"), garbage


async def test_requests_may_follow_each_other_on_one_connection_without_waiting(served: Served) -> None:
    post = head("POST", PATH, content_type=JSON, content_length=str(len(BODY))) + BODY
    async with connected(served) as wire:
        await wire.send(post * 5)
        offsets = [(await wire.answer()).problem["partitions"][0]["base_offset"] for _ in range(5)]
    assert offsets == [0, 1, 2, 3, 4]


async def test_a_connection_continues_after_a_refusal(served: Served) -> None:
    async with connected(served) as wire:
        for body, status in ((b"{", 400), (BODY, 200), (b"[]", 422), (BODY, 200)):
            await wire.send(head("POST", PATH, content_type=JSON, content_length=str(len(body))) + body)
            assert (await wire.answer()).status == status


async def test_a_client_that_does_not_read_holds_up_nobody(served: Served, live: httpx.AsyncClient) -> None:
    await live.post(PATH, json={"records": [{"value": "x" * 900_000}]})
    async with connected(served) as wire:
        await wire.send(head("GET", PATH) * 20)
        for _ in range(20):
            assert (await live.get("/healthz")).status_code == 200
        async with asyncio.timeout(WAIT_S):
            assert (await live.get(PATH)).status_code == 200


async def test_many_half_open_requests_hold_up_nobody(served: Served, live: httpx.AsyncClient) -> None:
    wires = [await asyncio.open_connection(served.host, served.port) for _ in range(50)]
    for _, writer in wires:
        writer.write(head("POST", PATH, content_type=JSON, content_length="100")[:-3])
    assert (await live.post(PATH, json={"records": [{"value": "x"}]})).status_code == 200
    for _, writer in wires:
        writer.close()
    assert await offsets_of(live, "web") == {0: 1, 1: 0}
