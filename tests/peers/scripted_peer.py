"""A peer on a socket that misbehaves: it becomes silent, dies, or sends a part of an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

REFUSAL = b'{"code":"%b","detail":"x","leader":"http://127.0.0.1:1"}'


def answer(status: int, body: bytes, *headers: str, told_bytes: int | None = None) -> bytes:
    """An answer whose Content-Length may be wrong."""
    length = len(body) if told_bytes is None else told_bytes
    lines = [f"HTTP/1.1 {status} Told", f"Content-Length: {length}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def refusal(code: str) -> bytes:
    return answer(503, REFUSAL % code.encode(), "Retry-After: 1", "Content-Type: application/problem+json")


@dataclass(frozen=True)
class Turn:
    """How it treats one connection: read `reads_bytes` of a request's body, send `writes`, and close. With `stays` it
    closes only when told to or when the client leaves, after `ends_with`."""

    writes: bytes = b""
    reads_bytes: int | None = None
    stays: bool = False
    ends_with: bytes = b""


@dataclass
class ScriptedPeer:
    """Takes one turn per connection and repeats the last one."""

    turns: Sequence[Turn]
    heads: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    url: str = ""
    left: int = 0
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)

    def hang_up(self) -> None:
        """Close the connections that stay."""
        self.hung_up.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        turn = self.turns[min(len(self.heads), len(self.turns) - 1)]
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            told = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
            wanted = int(told.split(b":")[1]) if turn.reads_bytes is None else turn.reads_bytes
            self.bodies.append(await reader.readexactly(wanted))
            writer.write(turn.writes)
            await writer.drain()
            if turn.stays:
                await asyncio.wait(
                    (asyncio.ensure_future(reader.read()), asyncio.ensure_future(self.hung_up.wait())),
                    return_when=asyncio.FIRST_COMPLETED,
                )
            writer.write(turn.ends_with)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has left
        finally:
            self.left += 1
            writer.transport.abort() if not turn.writes else writer.close()


@asynccontextmanager
async def scripted_peer(*turns: Turn) -> AsyncIterator[ScriptedPeer]:
    peer = ScriptedPeer(turns)
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    peer.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield peer
    finally:
        peer.hang_up()
        server.close()
