"""HTTP by hand over a socket, for requests that a well-behaved client never sends."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

WAIT_S = 30.0
"""A wait that takes longer has failed. A busy machine needs seconds."""


class Listening(Protocol):
    """The address of a broker."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


@dataclass(frozen=True)
class Answer:
    """Status and body of one answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def problem(self) -> dict[str, Any]:
        members: dict[str, Any] = json.loads(self.body)
        return members


@dataclass(frozen=True)
class Wire:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> Answer:
        """The next answer with a Content-Length."""
        async with asyncio.timeout(WAIT_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            status_line, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return Answer(int(status_line.split()[1]), headers, body)

    async def until(self, mark: bytes) -> bytes:
        async with asyncio.timeout(WAIT_S):
            return await self.reader.readuntil(mark)

    async def closed(self) -> bytes:
        """The bytes until the broker closes the connection."""
        async with asyncio.timeout(WAIT_S):
            return await self.reader.read()


@asynccontextmanager
async def connected(served: Listening) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection(served.host, served.port)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()


def head(method: str, path: str, **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


async def happens(condition: Any) -> None:
    """Wait for `condition()`; a test that waits in vain fails by its time limit."""
    async with asyncio.timeout(WAIT_S):
        for _ in itertools.takewhile(lambda _: not condition(), itertools.count()):
            await asyncio.sleep(0)
