"""Thousands of members of groups that poll one broker process over HTTP: the broker answers others at once, each record
reaches each group once, and the polls of a dead client cost nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from tests.attempts import attempts, quicker_than
from tests.broker.brokers import until
from tests.end_to_end.broker_process import BrokerProcess

MEMBERS_PER_GROUP = 20
WAIT_MS = 30_000
SESSION_MS = 120_000
PRODUCE_S_MAX = 2.0
READ_S_MAX = 10.0
BYTES_PER_POLL_MAX = 200_000


@dataclass
class Polls:
    """Members that poll for ever, each over its own connection. `read`: the group of each record that came."""

    port: int
    read: list[str] = field(default_factory=list)

    async def live(self, group: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        body: dict[str, Any] = {"topics": ["t"], "session_timeout_ms": SESSION_MS, "from_position": "earliest"}
        try:
            while True:
                answer = await self._polled(reader, writer, group, body | {"wait_ms": WAIT_MS})
                self.read += [group] * len(answer["records"])
                body = {name: answer[name] for name in ("member_id", "member_epoch", "offsets")}
        finally:
            writer.close()

    async def _polled(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, group: str, body: dict[str, Any]
    ) -> dict[str, Any]:
        content = json.dumps(body).encode()
        head = f"POST /v1/groups/{group}/poll HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAccept: application/json\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content)
        status = (await reader.readuntil(b"\r\n")).split()[1]
        fields = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(fields.split("content-length:")[1].split("\r\n")[0])
        answer: dict[str, Any] = json.loads(await reader.readexactly(length))
        assert status == b"200", answer
        return answer


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path, {"store": f"file:{tmp_path / 'data'}", "flush.interval.ms": "0"}, forked=False)
    broker.start()
    yield broker
    broker.stop()


async def many_polls(broker: BrokerProcess, count: int) -> None:
    groups = [f"group-{number}" for number in range(count // MEMBERS_PER_GROUP)]
    process = psutil.Process(broker.pid)
    async with httpx.AsyncClient(base_url=broker.url, trust_env=False, timeout=60) as client:
        created = await client.post("/v1/topics", json={"name": "t", "partitions": MEMBERS_PER_GROUP})
        assert created.is_success, created.text
        before = process.memory_info().rss
        polls = Polls(broker.port)
        tasks = [asyncio.create_task(polls.live(group)) for group in groups for _ in range(MEMBERS_PER_GROUP)]
        try:
            for group in groups:
                await stable(client, group)
            cpu_s = sum(process.cpu_times()[:2])
            await asyncio.sleep(2.0)
            cpu_s = (sum(process.cpu_times()[:2]) - cpu_s) / 2.0
            assert (process.memory_info().rss - before) / count < BYTES_PER_POLL_MAX
            print(f"{count} polls: {cpu_s:.2f} cores")
            for attempt in attempts():
                with attempt:
                    await _read_by_all(client, polls, groups)
            assert not [task for task in tasks if task.done()]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for attempt in attempts():
            with attempt, quicker_than(PRODUCE_S_MAX, "a produce after the polls"):
                await produce(client)


async def _read_by_all(client: httpx.AsyncClient, polls: Polls, groups: Sequence[str]) -> None:
    """A record that is produced reaches each group once, in time."""
    polls.read.clear()
    with quicker_than(READ_S_MAX, "a read by all groups"):
        with quicker_than(PRODUCE_S_MAX, f"a produce beside {len(groups) * MEMBERS_PER_GROUP} polls"):
            await produce(client)
        await until(lambda: len(polls.read) == len(groups))
    assert sorted(polls.read) == sorted(groups)


async def stable(client: httpx.AsyncClient, group: str) -> None:
    async with asyncio.timeout(120):
        while True:
            found = await client.get(f"/v1/groups/{group}")
            group_is = found.json() if found.is_success else {"state": "", "members": ()}
            if (group_is["state"], len(group_is["members"])) == ("Stable", MEMBERS_PER_GROUP):
                return
            await asyncio.sleep(0.1)


async def produce(client: httpx.AsyncClient) -> None:
    body = {"records": [{"value": "one"}]}
    answer = await client.post("/v1/topics/t/partitions/3/records", json=body)
    assert answer.is_success, answer.text


async def test_five_hundred_polls_over_http(broker: BrokerProcess) -> None:
    await many_polls(broker, 500)


@pytest.mark.soak
async def test_five_thousand_polls_over_http(broker: BrokerProcess) -> None:
    await many_polls(broker, 5_000)
