"""Large bodies are received straight into their buffer, over real sockets, on both event loops."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import uvicorn
import uvloop
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send
from tests.http.sockets import WAIT_S, Wire, happens, head

from tidelog.services.http.bodies.body_reading import BodyReader
from tidelog.services.http.listener.direct_body import DirectBodyProtocol
from tidelog.storage.errors import Overloaded
from tidelog.wire.errors import BodyTimeout, ClientGone

MIB = 1 << 20
BODY = bytes(range(251)) * (4 * MIB // 251)
HOLD_MAX = 6 * MIB


class Server:
    """Answers with the sha256 of a body, or the name of the error. Counts ASGI messages and errors."""

    def __init__(self, timeout_s: float = WAIT_S) -> None:
        self.bodies = BodyReader(HOLD_MAX, HOLD_MAX, timeout_s)
        self.messages = 0
        self.errors: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counted() -> Message:
            self.messages += 1
            return await receive()

        try:
            with self.bodies.in_flight() as held:
                body = await self.bodies.read(Request(scope, counted), held)
            text = hashlib.sha256(body).hexdigest()
        except (Overloaded, BodyTimeout, ClientGone) as error:
            self.errors.append(text := type(error).__name__)
        headers = [(b"content-length", str(len(text)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text.encode()})


@dataclass
class Connection:
    server: Server
    wire: Wire

    async def post(self, body: bytes) -> None:
        await self.wire.send(head("POST", "/", content_length=str(len(body))) + body)

    async def answer(self) -> str:
        return (await self.wire.answer()).body.decode()


@asynccontextmanager
async def listening(server: Server) -> AsyncIterator[Connection]:
    config = uvicorn.Config(server, http=DirectBodyProtocol, lifespan="off", log_config=None)  # type: ignore[arg-type]
    config.load()
    state = uvicorn.server.ServerState()
    loop = asyncio.get_running_loop()
    accepting = await loop.create_server(lambda: DirectBodyProtocol(config, state, {}), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*accepting.sockets[0].getsockname())
    try:
        yield Connection(server, Wire(reader, writer))
    finally:
        writer.close()
        accepting.close()
        await happens(lambda: not state.connections)


Check = Callable[[], Awaitable[None]]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Check], None]:
    def run_check(check: Check) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(WAIT_S):
                await check()

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(bounded())

    return run_check


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def test_a_large_body_wakes_its_task_once_however_it_arrives(run: Callable[[Check], None]) -> None:
    async def check() -> None:
        async with listening(Server()) as one:
            await one.wire.send(head("POST", "/", content_length=str(len(BODY))))
            for first in range(0, len(BODY), 100_000):
                await one.wire.send(BODY[first : first + 100_000])
                await asyncio.sleep(0)
            assert await one.answer() == sha256(BODY)
            assert one.server.messages <= 3
            assert (one.server.bodies.in_flight_bytes, one.server.bodies.allotted_bytes) == (0, 0)

    run(check)


def test_requests_that_follow_in_the_same_packet_are_answered_in_order(run: Callable[[Check], None]) -> None:
    async def check() -> None:
        async with listening(Server()) as one:
            wanted = [BODY, b"small", BODY[: 3 * MIB], b"x"]
            heads = [head("POST", "/", content_length=str(len(body))) for body in wanted]
            await one.wire.send(b"".join(part for pair in zip(heads, wanted, strict=True) for part in pair))
            assert [await one.answer() for _ in wanted] == [sha256(body) for body in wanted]

    run(check)


def test_a_client_that_leaves_in_the_middle_is_noticed_and_holds_nothing(run: Callable[[Check], None]) -> None:
    async def check() -> None:
        async with listening(Server()) as one:
            await one.wire.send(head("POST", "/", content_length=str(len(BODY))) + BODY[: 2 * MIB])
            await happens(lambda: one.server.bodies.in_flight_bytes == 2 * MIB)
            one.wire.writer.close()
            await happens(lambda: one.server.errors == ["ClientGone"])
            assert (one.server.bodies.in_flight_bytes, one.server.bodies.allotted_bytes) == (0, 0)

    run(check)


def test_a_body_that_is_refused_in_the_middle_is_skipped_and_the_connection_goes_on(
    run: Callable[[Check], None],
) -> None:
    async def check() -> None:
        async with listening(Server()) as one:
            with one.server.bodies.in_flight() as other:
                other.grow(HOLD_MAX - 3 * MIB)
                await one.post(BODY)
                assert await one.answer() == "Overloaded"
            await one.post(BODY)
            assert await one.answer() == sha256(BODY)

    run(check)


def test_a_body_that_is_given_up_does_not_disturb_the_next_one(run: Callable[[Check], None]) -> None:
    async def check() -> None:
        async with listening(Server(timeout_s=0.2)) as one:
            await one.wire.send(head("POST", "/", content_length=str(len(BODY))) + BODY[:MIB])
            assert await one.answer() == "BodyTimeout"
            await one.wire.send(BODY[MIB:])
            await one.post(BODY[:MIB])
            assert await one.answer() == sha256(BODY[:MIB])

    run(check)


def test_a_connection_that_is_to_be_closed_is_closed_after_a_large_body(run: Callable[[Check], None]) -> None:
    async def check() -> None:
        async with listening(Server()) as one:
            await one.wire.send(head("POST", "/", content_length=str(len(BODY)), connection="close") + BODY)
            assert await one.answer() == sha256(BODY)
            assert await one.wire.closed() == b""

    run(check)
