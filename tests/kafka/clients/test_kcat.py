"""kcat with Debian's librdkafka, which is some years old: it prints nothing on its standard error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.components.required import require_component
from tests.kafka.clients.circle import BASE_MS
from tests.kafka.clients.programs import run_program
from tests.kafka.conftest import KafkaServed

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = ("0", "1", "all")
EACH = 10
SENT = EACH * len(CODECS) * len(ACKS)


class Kcat:
    """Runs kcat against the broker."""

    def __init__(self, served: KafkaServed) -> None:
        self._program = require_component("kcat")
        self._bootstrap = f"127.0.0.1:{served.port}"

    async def __call__(self, *arguments: str, stdin: str = "") -> str:
        command = (self._program, "-b", self._bootstrap, "-q", *arguments)
        done = await run_program(*command, stdin=stdin.encode())
        assert done.errors == b"", arguments
        return done.out.decode()

    async def read(self, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (await self(*arguments, "-e", "-J")).splitlines()]


@pytest.fixture
async def kcat(served: KafkaServed) -> Kcat:
    """kcat, and a topic with records of every codec and acks. Their keys are numbers; every tenth value is null."""
    started = Kcat(served)
    for n, (codec, acks) in enumerate((codec, acks) for codec in CODECS for acks in ACKS):
        lines = "".join(f"{n * EACH + each}\t{each or ''}\n" for each in range(EACH))
        options = ("-z", codec, "-X", f"acks={acks}", "-H", f"codec={codec}", "-Z", "-K", "\t")
        await started("-P", "-t", "web", "-p", str(n % 2), *options, stdin=lines)
    return started


async def test_it_reads_what_it_produced_with_every_codec_and_acks(kcat: Kcat) -> None:
    (listed,) = json.loads(await kcat("-L", "-J"))["topics"]
    assert (listed["topic"], len(listed["partitions"])) == ("web", 2)
    found = sorted(await kcat.read("-C", "-t", "web"), key=lambda record: int(record["key"]))
    assert [record["key"] for record in found] == [str(n) for n in range(SENT)]
    assert [record["payload"] for record in found] == [str(n % EACH) if n % EACH else None for n in range(SENT)]
    codecs = [codec for codec in CODECS for _ in range(EACH * len(ACKS))]
    assert [record["headers"] for record in found] == [["codec", codec] for codec in codecs]
    assert all(record["ts"] > BASE_MS for record in found)


async def test_it_seeks_by_time_and_offset(kcat: Kcat) -> None:
    assert await kcat("-Q", "-t", f"web:0:{BASE_MS}") == "web [0] offset 0\n"
    assert len(await kcat.read("-C", "-t", "web", "-p", "1", "-o", "-5")) == 5
    assert len(await kcat.read("-C", "-t", "web", "-p", "0", "-o", f"s@{BASE_MS}", "-c", "7")) == 7


async def test_a_group_goes_on_where_it_stopped(kcat: Kcat) -> None:
    options = ("-X", "auto.offset.reset=earliest", "-G", "billing", "web")
    found = [await kcat.read("-c", str(SENT // 2), *options) for _ in range(2)]
    assert len({record["key"] for records in found for record in records}) == SENT
