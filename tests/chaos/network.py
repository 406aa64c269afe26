"""The network between the processes of a cluster, as a separate process that can be told to misbehave.

Every **link** is a TCP proxy with a name, for example ``broker-1>minio``. Its condition is one of

    open       bytes pass, each piece `delay_s` late
    refused    connections are reset, new ones at once
    silent     nothing passes in either direction, and nothing is lost: when the link opens again, all bytes arrive,
               as after a partition that TCP survived. So a request may arrive long after its sender gave up
    deaf       requests pass, and the first byte of an answer resets the connection: the request is done, but the
               sender does not know
    failing    every request gets an HTTP 503 and is not passed on

If the target of a link does not listen, the link refuses connections too.

Commands are JSON lines on standard input, ``{"link": "...", "condition": "silent", "delay_s": 0.0}``. The process
answers each with a line when it is in force. It exits at the end of its input. `Network` is the side that sends the
commands.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

HOST = "127.0.0.1"
PIECE_BYTES = 1 << 16
LOOK_S = 0.05
HEAD_BYTES_MAX = 1 << 16
SLOW_DOWN = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>told to fail</Message></Error>"
FAILURE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/xml\r\nConnection: close\r\n"
FAILURE += b"Content-Length: %d\r\n\r\n" % len(SLOW_DOWN) + SLOW_DOWN


class Condition(Enum):
    """See the module's head."""

    OPEN = "open"
    REFUSED = "refused"
    SILENT = "silent"
    DEAF = "deaf"
    FAILING = "failing"


@dataclass(frozen=True)
class LinkPorts:
    """A link listens on one port and forwards to another."""

    listen: int
    target: int


class Network:
    """Runs the links of `ports` from `__enter__` to `__exit__`."""

    def __init__(self, ports: Mapping[str, LinkPorts], log: Path) -> None:
        self._ports = ports
        self._log = log

    def set(self, link: str, condition: Condition, delay_s: float = 0.0) -> None:
        """Set the condition of links; return when it is in force."""
        self._say({"link": link, "condition": condition.value, "delay_s": delay_s})

    def heal(self) -> None:
        """Open every link."""
        for link in self._ports:
            self.set(link, Condition.OPEN)

    def __enter__(self) -> Self:
        ports = {name: [ports.listen, ports.target] for name, ports in self._ports.items()}
        command = [sys.executable, "-m", "tests.chaos.network", json.dumps(ports)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        self._await_answer()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def _say(self, command: Mapping[str, object]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        self._await_answer()

    def _await_answer(self) -> None:
        assert self._process.stdout
        answer = self._process.stdout.readline()
        assert answer == "done\n", f"the network says {answer!r}: {self._log.read_text()[-2_000:]}"


class _Link:
    """One listening port."""

    def __init__(self, ports: LinkPorts) -> None:
        self._ports = ports
        self._condition = Condition.OPEN
        self._delay_s = 0.0
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._open: set[asyncio.StreamWriter] = set()

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._connected, HOST, self._ports.listen)

    async def _refuse_as_the_target_does(self) -> None:
        """While the target does not listen, the link does not listen either. So a client that connects knows that
        nothing it would have sent was received."""
        if not self._server.is_serving():
            return
        self._server.close()
        while True:
            await asyncio.sleep(LOOK_S)
            if await self._target_listens():
                break
        await self.listen()

    async def _target_listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection(HOST, self._ports.target)
        except OSError:
            return False
        writer.close()
        return True

    def become(self, condition: Condition, delay_s: float) -> None:
        self._condition, self._delay_s = condition, delay_s
        if condition is Condition.SILENT:
            self._flowing.clear()
            return
        self._flowing.set()
        if condition in (Condition.REFUSED, Condition.FAILING):
            for writer in self._open:
                writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            match self._condition:
                case Condition.REFUSED:
                    writer.transport.abort()
                case Condition.FAILING:
                    await self._fail(reader, writer)
                case _:
                    await self._join(reader, writer)
        writer.close()

    async def _fail(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(FAILURE)
        await writer.drain()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._flowing.wait()
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, self._ports.target)
        except ConnectionRefusedError:
            writer.transport.abort()
            await self._refuse_as_the_target_does()
            return
        self._open |= {writer, far_writer}
        try:
            await asyncio.gather(
                self._pass_on(reader, far_writer, answers=False), self._pass_on(far_reader, writer, answers=True)
            )
        finally:
            self._open -= {writer, far_writer}
            far_writer.close()

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, answers: bool) -> None:
        try:
            while piece := await source.read(PIECE_BYTES):
                if self._delay_s and not answers:
                    await asyncio.sleep(self._delay_s)
                await self._flowing.wait()
                if answers and self._condition is Condition.DEAF:
                    target.transport.abort()
                    return
                if target.is_closing():
                    return
                target.write(piece)
                await target.drain()
        except OSError:
            target.transport.abort()  # the other end closed the connection; close this one
        finally:
            await self._flowing.wait()
            target.close()


async def _serve(ports: Mapping[str, LinkPorts]) -> None:
    links = {name: _Link(each) for name, each in ports.items()}
    for link in links.values():
        await link.listen()
    commands = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    print("done", flush=True)
    while line := await commands.readline():
        command = json.loads(line)
        links[command["link"]].become(Condition(command["condition"]), command["delay_s"])
        print("done", flush=True)


def _run(serving: Coroutine[Any, Any, None]) -> None:
    import uvloop

    uvloop.run(serving)


if __name__ == "__main__":
    _run(_serve({name: LinkPorts(*ports) for name, ports in json.loads(sys.argv[1]).items()}))
