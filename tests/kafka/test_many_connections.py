"""All connections of Kafka clients together: their number, their memory, idle and half-sent ones, and the drain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.kafka.scripted_listener import BOUNDS, ScriptedListener, answer, frame, is_ended, listening

from tidelog.services.kafka.listener.request_memory import FULL_RECEIVE_BYTES, RECEIVE_BYTES, TURN_BYTES_MIN

MANY = 1_000


@pytest.fixture
async def listener() -> AsyncIterator[ScriptedListener]:
    async with listening() as scripted:
        yield scripted


async def test_a_connection_beyond_the_bound_is_closed_and_those_within_it_go_on(
    listener: ScriptedListener, caplog: pytest.LogCaptureFixture
) -> None:
    open_ones = [await listener.connect() for _ in range(BOUNDS.connections_max)]
    await listener.until(lambda: len(listener.connections) == BOUNDS.connections_max)
    reader, beyond = await listener.connect()
    assert await is_ended(reader)
    assert "max.connections" in caplog.text
    assert listener.counts.refused == 1
    open_ones[0][1].close()
    await listener.until(lambda: len(listener.connections) == BOUNDS.connections_max - 1)
    reader, writer = await listener.connect()
    writer.write(frame(1))
    await listener.until(lambda: 1 in listener.placed)
    for each in (beyond, writer, *(writer for _, writer in open_ones)):
        each.close()


async def test_idle_connections_are_closed_and_busy_ones_are_not(listener: ScriptedListener) -> None:
    (idle, idle_writer), (_, busy) = await listener.connect(), await listener.connect()
    busy.write(frame(1))
    await listener.until(lambda: 1 in listener.placed)
    now_s = listener.connections.now_s()
    listener.connections.sweep(now_s + BOUNDS.idle_s - 1)
    assert len(listener.connections) == 2
    listener.connections.sweep(now_s + BOUNDS.idle_s + 1)
    assert await is_ended(idle)
    assert len(listener.connections) == 1, "a request that waits is not idle"
    idle_writer.close()
    busy.close()


@pytest.mark.parametrize("sent", [b"\0\0", frame(1)[:6], frame(1, 1 << 20)[:-1]])
async def test_half_of_a_request_is_not_waited_for_for_ever(
    listener: ScriptedListener, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await listener.connect()
    writer.write(sent)
    await listener.until(lambda: listener.counts.received_bytes == len(sent))
    now_s = listener.connections.now_s()
    listener.connections.sweep(now_s + BOUNDS.read_timeout_s - 1)
    assert len(listener.connections) == 1
    listener.connections.sweep(now_s + BOUNDS.read_timeout_s + 1)
    assert await is_ended(reader)
    assert "a part of a request" in str([record.__dict__ for record in caplog.records])
    writer.close()


async def test_a_length_without_bytes_takes_no_memory(listener: ScriptedListener) -> None:
    writers = [(await listener.connect())[1] for _ in range(5)]
    for writer in writers:
        writer.write(frame(1, BOUNDS.frame_bytes_max - 4)[:100])
    await listener.until(lambda: listener.counts.received_bytes == 500)
    assert listener.connections.memory.bytes == 500
    for writer in writers:
        writer.close()


async def test_the_memory_of_all_requests_is_bounded_and_given_in_turn() -> None:
    size, count = 1 << 20, 8
    async with listening(replace(BOUNDS, memory_bytes_max=2 * size)) as listener:
        pairs = [await listener.connect() for _ in range(count)]
        for number, (_, writer) in enumerate(pairs):
            writer.write(frame(number, size))
        await listener.until(lambda: listener.connections.memory.is_full)
        await asyncio.sleep(0.05)
        beyond = size + RECEIVE_BYTES + count * FULL_RECEIVE_BYTES
        assert listener.connections.memory.bytes <= 2 * size + beyond, "one request has the turn"
        assert len(listener.placed) < count
        answered: set[int] = set()
        while len(answered) < count:
            await listener.until(lambda: len(listener.placed) > len(answered))
            for number in set(listener.placed) - answered:
                listener.placed[number].set_result((b"",))
                assert await answer(pairs[number][0]) == (number, b"")
                answered.add(number)
        for _, writer in pairs:
            writer.close()


async def test_parts_of_requests_that_fill_the_memory_make_room_in_the_end() -> None:
    async with listening(replace(BOUNDS, memory_bytes_max=1 << 20)) as listener:
        pairs = [await listener.connect() for _ in range(4)]
        for _, writer in pairs:
            writer.write(frame(1, 2 << 20)[: 1 << 20])
        await listener.until(lambda: listener.connections.memory.is_full)
        listener.connections.sweep(listener.connections.now_s() + BOUNDS.read_timeout_s + 1)
        await listener.until(lambda: len(listener.connections) == 0)
        _, writer = await listener.connect()
        writer.write(frame(9))
        await listener.until(lambda: 9 in listener.placed)
        for each in (writer, *(writer for _, writer in pairs)):
            each.close()


async def test_a_request_that_comes_byte_by_byte_is_answered(listener: ScriptedListener) -> None:
    (reader, writer), (other, other_writer) = await listener.connect(), await listener.connect()
    for at, byte in enumerate(sent := frame(1, 20)):
        writer.write(bytes((byte,)))
        await listener.until(lambda: listener.counts.received_bytes >= at + 1 + len(sent) * at)  # noqa: B023
        other_writer.write(frame(100 + at, 20))
        await listener.until(lambda: 100 + at in listener.placed)  # noqa: B023
        listener.placed[100 + at].set_result((b"",))
        assert await answer(other) == (100 + at, b"")
    await listener.until(lambda: 1 in listener.placed)
    listener.placed[1].set_result((b"late",))
    assert await answer(reader) == (1, b"late")
    writer.close()
    other_writer.close()


async def test_slow_parts_that_fill_the_memory_are_ended_and_another_client_is_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They send a byte now and then, so they are never silent for `read_timeout_s`."""
    async with listening(replace(BOUNDS, memory_bytes_max=1 << 20)) as listener:
        slow = [await listener.connect() for _ in range(4)]
        for _, writer in slow:
            writer.write(frame(1, 2 << 20)[:TURN_BYTES_MIN])
        for _, writer in slow:
            writer.write(b"x" * 1_000)  # so that the last one fills the memory
        await listener.until(lambda: listener.connections.memory.is_full)
        reader, writer = await listener.connect()
        writer.write(frame(2, 100_000))
        async with asyncio.timeout(20):
            while 2 not in listener.placed:
                for _, other in slow:
                    other.write(b"x")
                await asyncio.sleep(0.05)
        listener.placed[2].set_result((b"fine",))
        assert await answer(reader) == (2, b"fine")
        assert "came too slowly" in str([record.__dict__ for record in caplog.records])
        for each in (writer, *(writer for _, writer in slow)):
            each.close()


async def test_thousands_of_connections_are_answered() -> None:
    async with listening(replace(BOUNDS, connections_max=MANY, connections_per_address_max=MANY)) as listener:
        pairs = [await listener.connect() for _ in range(MANY)]
        for number, (_, writer) in enumerate(pairs):
            writer.write(frame(number))
        await listener.until(lambda: len(listener.placed) == MANY)
        for number, future in listener.placed.items():
            future.set_result((str(number).encode(),))
        for number, (reader, writer) in enumerate(pairs):
            assert await answer(reader) == (number, str(number).encode())
            writer.close()


async def test_the_drain_answers_what_is_under_way_and_reads_no_more(listener: ScriptedListener) -> None:
    (reader, writer), (idle, idle_writer) = await listener.connect(), await listener.connect()
    writer.write(frame(1))
    await listener.until(lambda: 1 in listener.placed)
    draining = asyncio.create_task(listener.connections.drained(20))
    assert await is_ended(idle), "a connection without requests closes at once"
    writer.write(frame(2))
    listener.placed[1].set_result((b"answered",))
    assert await answer(reader) == (1, b"answered")
    assert await is_ended(reader)
    await draining
    assert 2 not in listener.placed
    writer.close()
    idle_writer.close()


async def test_the_drain_ends_after_its_time(listener: ScriptedListener, caplog: pytest.LogCaptureFixture) -> None:
    reader, writer = await listener.connect()
    writer.write(frame(1))
    await listener.until(lambda: 1 in listener.placed)
    await listener.connections.drained(0.05)
    assert await is_ended(reader)
    assert "1 connections had unanswered requests" in caplog.text
    writer.close()
