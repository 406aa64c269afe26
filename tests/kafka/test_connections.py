"""One connection of a Kafka client: the order of answers, its bounds, and bytes that are no requests."""

from __future__ import annotations

import asyncio
import logging
import struct
from dataclasses import replace

import pytest
from tests.kafka.scripted_listener import BAD, BOUNDS, answer, frame, is_ended, listening

from tidelog.services.kafka.listener.connections import LINES_PER_SWEEP_MAX
from tidelog.services.kafka.listener.request_memory import CONNECTION_BYTES_MAX, CONNECTION_REQUESTS_MAX
from tidelog.services.kafka.protocol.api_table import FETCH


async def test_requests_are_placed_without_waiting_and_answered_in_their_order() -> None:
    async with listening() as listener:
        reader, writer = await listener.connect()
        writer.write(b"".join(frame(number) for number in range(5)))
        await listener.until(lambda: len(listener.placed) == 5)
        assert listener.order == [0, 1, 2, 3, 4]
        for number in (4, 2, 1):
            listener.placed[number].set_result((b"late",))
        listener.placed[0].set_result((b"a", memoryview(b"b")))
        assert [await answer(reader) for _ in range(3)] == [(0, b"ab"), (1, b"late"), (2, b"late")]
        listener.placed[3].set_result(None)
        assert await answer(reader) == (4, b"late"), "a request without an answer holds up no other one"
        writer.close()


@pytest.mark.parametrize("padding", [0, 1, 60_000, 65_532, 65_536, 1_000_000])
async def test_frames_are_whole_however_they_arrive(padding: int) -> None:
    async with listening() as listener:
        reader, writer = await listener.connect()
        sent = b"".join(frame(number, padding) for number in range(3))
        for at in (0, 1, 3, 4, 9, len(sent) // 2, len(sent) - 1):
            writer.write(sent[:at])
            sent = sent[at:]
            await asyncio.sleep(0.002)
        writer.write(sent)
        await listener.until(lambda: listener.order == [0, 1, 2])
        for number in range(3):
            listener.placed[number].set_result((b"",))
            assert await answer(reader) == (number, b"")
        await listener.until(lambda: listener.connections.memory.bytes == 0)
        writer.close()


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">i", -1),
        struct.pack(">i", BOUNDS.frame_bytes_max + 1),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        struct.pack(">i", 4) + BAD,
    ],
)
async def test_bytes_that_are_no_request_end_their_connection_alone(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening() as listener:
        (reader, writer), (other, other_writer) = await listener.connect(), await listener.connect()
        writer.write(sent)
        assert await is_ended(reader)
        (line,) = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert line.fields["reason"]
        assert line.fields["client"].startswith("127.0.0.1:")
        other_writer.write(frame(7))
        await listener.until(lambda: 7 in listener.placed)
        listener.placed[7].set_result((b"fine",))
        assert await answer(other) == (7, b"fine")
        assert listener.counts.ended == 1
        writer.close()
        other_writer.close()


async def test_a_flood_of_bad_clients_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with listening() as listener:
        for _ in range(LINES_PER_SWEEP_MAX + 5):
            reader, writer = await listener.connect()
            writer.write(struct.pack(">i", -1))
            assert await is_ended(reader)
            writer.close()
        assert len(caplog.records) == LINES_PER_SWEEP_MAX
        listener.connections.sweep(listener.connections.now_s())
        assert caplog.records[-1].getMessage() == "ended or refused 5 more connections"


async def test_an_api_that_fails_ends_its_connection_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with listening() as listener:
        reader, writer = await listener.connect()
        writer.write(frame(1))
        await listener.until(lambda: 1 in listener.placed)
        listener.placed[1].set_exception(RuntimeError("a bug"))
        assert await is_ended(reader)
        assert "a bug" in caplog.text
        writer.close()


async def test_unanswered_requests_are_bounded_and_the_rest_is_read_later() -> None:
    async with listening() as listener:
        reader, writer = await listener.connect()
        count, padding = 3 * CONNECTION_REQUESTS_MAX, 20_000
        writer.write(b"".join(frame(number, padding) for number in range(count)))
        await listener.until(lambda: len(listener.placed) >= CONNECTION_REQUESTS_MAX)
        await asyncio.sleep(0.05)
        assert len(listener.placed) <= CONNECTION_REQUESTS_MAX + 4, "at most what one receive holds more"
        for number in range(count):
            await listener.until(lambda: number in listener.placed)  # noqa: B023
            listener.placed[number].set_result((b"",))
            assert await answer(reader) == (number, b"")
        writer.close()


async def test_the_bytes_of_unanswered_requests_are_bounded() -> None:
    async with listening(replace(BOUNDS, memory_bytes_max=1 << 30)) as listener:
        reader, writer = await listener.connect()
        writer.write(b"".join(frame(number, 3 << 20) for number in range(10)))
        await listener.until(lambda: listener.connections.memory.bytes >= CONNECTION_BYTES_MAX)
        await asyncio.sleep(0.05)
        assert listener.connections.memory.bytes < CONNECTION_BYTES_MAX + (1 << 20)
        for number in range(10):
            await listener.until(lambda: number in listener.placed)  # noqa: B023
            listener.placed[number].set_result((b"",))
            assert await answer(reader) == (number, b"")
        writer.close()


async def test_a_client_that_reads_no_answers_is_not_read_and_harms_no_other() -> None:
    async with listening() as listener:
        (_, slow), (reader, writer) = await listener.connect(), await listener.connect()
        slow.transport.pause_reading()
        slow.write(b"".join(frame(number) for number in range(20)))
        await listener.until(lambda: len(listener.placed) == 20)
        for number in range(20):
            listener.placed[number].set_result((bytes(2 << 20),))
        await asyncio.sleep(0.05)
        slow.write(frame(99))
        writer.write(frame(50))
        await listener.until(lambda: 50 in listener.placed)
        listener.placed[50].set_result((b"fine",))
        assert await answer(reader) == (50, b"fine")
        assert 99 not in listener.placed
        now_s = listener.connections.now_s()
        listener.connections.sweep(now_s + BOUNDS.idle_s + 1)
        await listener.until(lambda: len(listener.connections) == 0)
        slow.transport.abort()
        writer.close()


async def test_requests_that_arrived_are_carried_out_after_their_client_left() -> None:
    """A producer with acks=0 sends and leaves."""
    async with listening() as listener:
        listener.hold.clear()
        _, writer = await listener.connect()
        writer.write(b"".join(frame(number) for number in range(5)))
        await writer.drain()
        await listener.until(lambda: listener.counts.received_bytes == 5 * 8)
        writer.close()
        await listener.until(lambda: len(listener.connections) == 0)
        listener.hold.set()
        await listener.until(lambda: listener.order == [0, 1, 2, 3, 4])
        assert not any(each.cancelled() for each in listener.placed.values())


async def test_a_long_poll_ends_with_its_client() -> None:
    async with listening() as listener:
        listener.is_long_poll = True
        _, writer = await listener.connect()
        writer.write(frame(1))
        await listener.until(lambda: 1 in listener.placed)
        writer.transport.abort()
        await listener.until(lambda: listener.placed[1].cancelled())


async def test_a_long_poll_waits_for_the_answers_before_it() -> None:
    """Otherwise a client could fill the memory with answers that it does not read."""
    fetches = [(FETCH << 16) + number for number in range(3)]
    async with listening() as listener:
        reader, writer = await listener.connect()
        writer.write(b"".join(frame(number) for number in (1, *fetches, 2)))
        await listener.until(lambda: 1 in listener.placed)
        for before, number in zip((1, *fetches), (*fetches, 2), strict=True):
            await asyncio.sleep(0.01)
            assert (number in listener.placed) == (number == 2), "what is no long poll does not wait for one"
            if number != 2:
                listener.placed[before].set_result((b"",))
                assert await answer(reader) == (before, b"")
                await listener.until(lambda: number in listener.placed)  # noqa: B023
        writer.close()


async def test_a_client_that_reads_no_answers_gets_no_further_ones() -> None:
    async with listening() as listener:
        _, writer = await listener.connect()
        writer.transport.pause_reading()
        writer.write(frame(1))
        await listener.until(lambda: 1 in listener.placed)
        listener.hold.clear()
        writer.write(frame(2) + frame(3))
        await asyncio.sleep(0.02)
        listener.placed[1].set_result((bytes(16 << 20),))
        await asyncio.sleep(0.02)
        listener.hold.set()
        await listener.until(lambda: 2 in listener.placed)
        await asyncio.sleep(0.05)
        assert 3 not in listener.placed, "only the request that was being placed"
        writer.transport.abort()
        await listener.until(lambda: 3 in listener.placed)
