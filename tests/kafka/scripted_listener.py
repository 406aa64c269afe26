"""Connections whose requests a test answers by hand: a request is its correlation id in four bytes of body."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from tidelog.services.doors.kafka_counts import KafkaCounts
from tidelog.services.kafka.listener.connection import Client, KafkaConnection
from tidelog.services.kafka.listener.connections import Connections, ListenerBounds
from tidelog.services.kafka.listener.placed_requests import PlacedRequest
from tidelog.services.kafka.protocol.api import Answer, Malformed
from tidelog.services.kafka.protocol.api_table import API_TABLE, METADATA
from tidelog.storage.runtime import SystemClock

BOUNDS = ListenerBounds(
    connections_max=10,
    connections_per_address_max=10,
    frame_bytes_max=4 << 20,
    memory_bytes_max=8 << 20,
    idle_s=600,
    read_timeout_s=30,
)
BAD = b"bad!"
POLL = replace(API_TABLE[METADATA], is_long_poll=True)


def frame(correlation_id: int, padding: int = 0) -> bytes:
    return struct.pack(">ii", 4 + padding, correlation_id) + bytes(padding)


@dataclass
class ScriptedListener:
    """`placed`: the answers to come, by correlation id. `hold` keeps requests from being placed."""

    connections: Connections
    counts: KafkaCounts
    placed: dict[int, asyncio.Future[Answer]] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    port: int = 0
    is_long_poll: bool = False
    hold: asyncio.Event = field(default_factory=asyncio.Event)

    async def place(self, request: memoryview, client: Client) -> PlacedRequest:
        assert client.listener == "TEST"
        await self.hold.wait()
        if bytes(request[:4]) == BAD:
            raise Malformed("the request is bad")
        number = int.from_bytes(request[:4], "big")
        self.order.append(number)
        self.placed[number] = asyncio.get_running_loop().create_future()
        api = POLL if self.is_long_poll else API_TABLE[METADATA]
        return PlacedRequest(api, 0, number, len(request), 0.0, self.placed[number])

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110  # the condition has no event
                await asyncio.sleep(0.005)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)


@asynccontextmanager
async def listening(bounds: ListenerBounds = BOUNDS) -> AsyncIterator[ScriptedListener]:
    counts = KafkaCounts()
    listener = ScriptedListener(Connections(bounds, counts, SystemClock()), counts)
    listener.hold.set()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: KafkaConnection("TEST", listener.connections, listener.place), "127.0.0.1", 0
    )
    listener.port = server.sockets[0].getsockname()[1]
    yield listener
    server.close()
    listener.connections.abort()
    await listener.until(lambda: len(listener.connections) == 0)
    for left in listener.placed.values():
        left.cancel()
    await asyncio.sleep(0)
    assert listener.connections.memory.bytes == 0, "all memory is given back"


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The correlation id and the body of the next answer."""
    async with asyncio.timeout(20):
        size, correlation_id = struct.unpack(">ii", await reader.readexactly(8))
        return correlation_id, await reader.readexactly(size - 4)


async def is_ended(reader: asyncio.StreamReader) -> bool:
    """Wait until the broker has closed the connection."""
    async with asyncio.timeout(20):
        try:
            return await reader.read(1) == b""
        except ConnectionError:
            return True
