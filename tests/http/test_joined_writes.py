"""The head of an answer is written together with its body, and never later than the event loop's turn."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tidelog.services.http.listener.joined_writes import JOINED_BYTES_MAX, JoiningTransport

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class _Recorder(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.written_together: list[tuple[bytes | bytearray | memoryview, ...]] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.written_together.append(tuple(list_of_data))

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


def _joining() -> tuple[_Recorder, JoiningTransport]:
    recorder = _Recorder()
    return recorder, JoiningTransport(recorder, asyncio.get_running_loop())


async def test_a_head_and_its_body_are_one_write() -> None:
    recorder, transport = _joining()
    transport.write(HEAD)
    transport.write(b"body")
    transport.write(b"more")
    await asyncio.sleep(0)
    assert recorder.writes == [HEAD + b"body", b"more"]


async def test_a_large_body_is_not_copied_behind_its_head() -> None:
    recorder, transport = _joining()
    body = memoryview(bytes(JOINED_BYTES_MAX + 1))
    transport.write(HEAD)
    transport.write(body)
    assert recorder.written_together == [(HEAD, body)]


async def test_a_head_alone_goes_out_at_the_end_of_the_turn() -> None:
    recorder, transport = _joining()
    transport.write(HEAD)
    assert recorder.writes == []
    await asyncio.sleep(0)
    assert recorder.writes == [HEAD]


async def test_closing_sends_what_waits_and_aborting_drops_it() -> None:
    recorder, transport = _joining()
    transport.write(HEAD)
    transport.close()
    assert (recorder.writes, recorder.closed) == ([HEAD], True)
    recorder, transport = _joining()
    transport.write(HEAD)
    transport.abort()
    await asyncio.sleep(0)
    assert (recorder.writes, recorder.closed) == ([], True)


async def test_a_second_head_sends_the_first() -> None:
    recorder, transport = _joining()
    transport.write(HEAD)
    transport.write(HEAD)
    await asyncio.sleep(0)
    assert b"".join(recorder.writes) == HEAD + HEAD
