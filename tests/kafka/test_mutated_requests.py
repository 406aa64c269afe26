"""Requests of every API in every version, whole and damaged: the broker answers or ends the connection, and goes on.

`TIDELOG_SOAK_MINUTES` says how long the long form runs; a failure names its seed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.kafka.conftest import SETTINGS, KafkaServed
from tests.kafka.every_request import damaged, every_request
from tests.kafka.kio_client import KioClient, request_of
from tests.kafka.scripted_listener import is_ended

from tidelog.services.broker.api.request_context import BROKER_ITSELF
from tidelog.services.kafka.protocol.api_table import API_TABLE, API_VERSIONS
from tidelog.services.settings.settings import Settings

ROUNDS = 8
AT_ONCE = 40
ANSWER_S = 0.3
"""How long a damaged request, which may be a long poll now, is waited for. Nothing depends on its answer."""
MEMORY_BYTES_MAX = 64 << 20
"""What requests of some hundred bytes may add to the peak, whatever lengths they claim."""
SEED = random.randrange(1 << 30)


@pytest.fixture
def settings() -> Settings:
    return replace(SETTINGS, group_initial_rebalance_delay_ms=0)


@pytest.fixture(autouse=True)
async def events(served: KafkaServed) -> None:
    await served.broker.create_topic(BROKER_ITSELF, "events", 2, {})


async def test_a_whole_request_of_every_api_and_version_is_answered(served: KafkaServed) -> None:
    async def ask(frame: bytes) -> bytes:
        client = await served.connect()
        client.writer.write(frame)
        try:
            return await client.frame()
        finally:
            await client.aclose()

    asked = list(every_request())
    assert len(asked) == sum(api.highest - api.lowest + 1 for api in API_TABLE.values())
    answers = await asyncio.gather(*(ask(frame) for _, _, frame in asked))
    assert all(len(answer) > 4 for answer in answers)


async def test_damaged_requests_of_every_api_and_version_crash_nothing(
    served: KafkaServed, caplog: pytest.LogCaptureFixture
) -> None:
    await assert_survived(served, caplog, ROUNDS)


@pytest.mark.soak
async def test_damaged_requests_for_minutes_crash_nothing(
    served: KafkaServed, caplog: pytest.LogCaptureFixture
) -> None:
    until = time.monotonic() + 60 * float(os.environ.get("TIDELOG_SOAK_MINUTES", "1"))
    seed = SEED
    while time.monotonic() < until:
        seed += 1
        await assert_survived(served, caplog, ROUNDS, seed)


async def assert_survived(served: KafkaServed, caplog: pytest.LogCaptureFixture, rounds: int, seed: int = SEED) -> None:
    """Send damaged requests, while another client is answered; no log line tells of a bug."""
    caplog.set_level(logging.ERROR)
    chance = random.Random(seed)
    whole = [frame for _, _, frame in every_request()]
    other = await served.connect()
    before = restarted_peak()
    for frames in in_parts([damaged(chance, frame) for _ in range(rounds) for frame in whole]):
        await asyncio.gather(*(thrown(served, frame) for frame in frames))
        assert (await other.ask(request_of(API_VERSIONS, 0))).error_code == 0, f"seed {seed}"
    await other.aclose()
    told = [record.getMessage() + str(record.exc_text or "") for record in caplog.records]
    assert not told, f"seed {seed}: {told[0]}"
    assert peak_bytes() - before < MEMORY_BYTES_MAX, f"seed {seed}"


def in_parts(frames: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (frames[at : at + AT_ONCE] for at in range(0, len(frames), AT_ONCE))


async def thrown(served: KafkaServed, frame: bytes) -> None:
    """Send `frame`, see whether something comes, and hang up."""
    client: KioClient = await served.connect()
    client.writer.write(frame)
    await asyncio.wait([asyncio.ensure_future(is_ended(client.reader))], timeout=ANSWER_S)
    await client.aclose()


def restarted_peak() -> int:
    """The memory of this process now, which is the peak from here on."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes()


def peak_bytes() -> int:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) << 10
