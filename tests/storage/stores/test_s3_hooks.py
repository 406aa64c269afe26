"""Each hook of `stores.s3_hooks` finds what it needs in the S3 libraries. Run this first after an upgrade."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest
from tests.components.s3_endpoint import S3Endpoint
from tests.storage.stores.misbehaving_server import MisbehavingServer, answer

from tidelog.storage.stores.s3_client import Connection, connect
from tidelog.storage.stores.s3_hooks import GetPatterns

OBJECT = answer("200 OK", b"body", ['ETag: "tag"', "Last-Modified: Wed, 21 Oct 2026 07:28:00 GMT"])


@pytest.fixture
async def connection() -> AsyncIterator[Connection]:
    """A client that got one object, and keeps the connection of that request."""
    with MisbehavingServer(OBJECT) as server:
        async with AsyncExitStack() as stack:
            connection = await connect(S3Endpoint(server.url, "id", "secret").settings(), stack)
            yield connection


async def get(connection: Connection, key: str) -> None:
    answer = await connection.client.get_object(Bucket="bucket", Key=key)
    async with answer["Body"] as stream:
        assert await stream.read() == b"body"


def aiohttp_sessions(connection: Connection) -> list[Any]:
    http: Any = connection.http
    return list(http._sessions.values())


async def test_the_second_try_of_aiohttp_exists_and_is_off(connection: Connection) -> None:
    await get(connection, "a")
    (session,) = aiohttp_sessions(connection)
    assert session._retry_connection is False
    async with aiohttp.ClientSession() as untouched:
        assert untouched._retry_connection is True


async def test_idle_connections_are_found_and_closed(connection: Connection) -> None:
    await get(connection, "a")
    (session,) = aiohttp_sessions(connection)
    ((protocol, _),) = [kept for each in session.connector._conns.values() for kept in each]
    assert protocol.is_connected()
    connection.http.close_idle()
    assert not protocol.is_connected()
    assert not session.connector._conns
    await get(connection, "b")


async def test_a_get_that_was_signed_is_a_pattern_for_others(connection: Connection) -> None:
    patterns = GetPatterns(connection.client)
    patterns.expect("a b")
    await get(connection, "a b")
    assert patterns.last is not None
    request = await patterns.last.signed("c/d", "bytes=1-2")
    assert str(request.url).endswith("/bucket/c/d")
    assert request.headers["Range"] == "bytes=1-2"
    assert "range;" in str(request.headers["Authorization"])
