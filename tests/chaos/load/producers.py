"""Clients that append: with sequences, without, to a partition that the service chooses, and as rivals.

Each has one request in flight. A client with sequences sends a batch again, to any broker, until it is acknowledged;
the sequence makes that safe. The others never send a value twice, so the outcome of a request without an answer stays
unknown.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from tests.chaos.load.calls import CONFLICT, Answer, Caller
from tests.chaos.load.recorder import Recorder
from tests.chaos.load.values import Value
from tests.chaos.load.workload import Chance, Workload

RETRY_PAUSE_S = 0.1
KEYS = 40
Client = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Means:
    """What every client has. When `stopping` is set, a client finishes its current operation."""

    workload: Workload
    caller: Caller
    recorder: Recorder
    stopping: asyncio.Event

    async def pause(self, seconds: float) -> None:
        """Sleep, but not beyond the end of the run."""
        try:
            await asyncio.wait_for(self.stopping.wait(), seconds)
        except TimeoutError:
            return


class SequencedProducer:
    """The only writer with a sequence to one partition."""

    def __init__(self, means: Means, name: str, topic: str, partition: int) -> None:
        self._means = means
        self._name = name
        self._topic = topic
        self._partition = partition
        self._chance = Chance(means.workload, name)
        self._next = 0

    async def run(self) -> None:
        while not self._means.stopping.is_set():
            first, count = self._next, self._chance.records()
            self._next += count
            answer = await self._attempt(first, count)
            while not answer.ok and answer.expected:
                await asyncio.sleep(RETRY_PAUSE_S)
                answer = await self._attempt(first, count)
            if not answer.ok:
                return  # refused for good: the report shows it
            await self._means.pause(self._chance.pause_s())

    async def _attempt(self, first: int, count: int) -> Answer:
        url = f"{self._chance.broker()}/v1/topics/{self._topic}/partitions/{self._partition}/records"
        headers = {
            "Content-Type": "text/plain",
            "Tidelog-Producer-Id": self._name,
            "Tidelog-Producer-Epoch": "0",
            "Tidelog-Sequence": str(first),
        }
        answer = await self._means.caller.post(url, lines_of(self._name, first, count), headers)
        self._means.recorder.append(self._name, self._topic, self._partition, first, count, answer, sequenced=True)
        return answer


class PlainProducer:
    """Writes without sequences to random partitions."""

    def __init__(self, means: Means, name: str, topic: str) -> None:
        self._means = means
        self._name = name
        self._topic = topic
        self._chance = Chance(means.workload, name)
        self._next = 0

    async def run(self) -> None:
        while not self._means.stopping.is_set():
            first, count = self._next, self._chance.records()
            self._next += count
            partition = self._chance.below(self._means.workload.partitions[self._topic])
            url = f"{self._chance.broker()}/v1/topics/{self._topic}/partitions/{partition}/records"
            answer = await self._means.caller.post(
                url, lines_of(self._name, first, count), {"Content-Type": "text/plain"}
            )
            self._means.recorder.append(self._name, self._topic, partition, first, count, answer)
            await self._means.pause(self._chance.pause_s())


class SpreadingProducer:
    """Lets the service choose the partition: by the key, or freely for a request without keys."""

    def __init__(self, means: Means, name: str, topic: str, *, keyed: bool) -> None:
        self._means = means
        self._name = name
        self._topic = topic
        self._keyed = keyed
        self._chance = Chance(means.workload, name)
        self._next = 0

    async def run(self) -> None:
        while not self._means.stopping.is_set():
            first, count = self._next, self._chance.records()
            self._next += count
            keys = [f"k{self._chance.below(KEYS)}" for _ in range(count)] if self._keyed else []
            answer = await self._send(first, count, keys)
            self._means.recorder.append(self._name, self._topic, None, first, count, answer, keys=keys)
            await self._means.pause(self._chance.pause_s())

    async def _send(self, first: int, count: int, keys: list[str]) -> Answer:
        url = f"{self._chance.broker()}/v1/topics/{self._topic}/records"
        if not keys:
            return await self._means.caller.post(
                url, lines_of(self._name, first, count), {"Content-Type": "text/plain"}
            )
        records = [{"key": key, "value": Value(self._name, first + n, key).text} for n, key in enumerate(keys)]
        body = json.dumps({"records": records}).encode()
        return await self._means.caller.post(url, body, {"Content-Type": "application/json"})


class Rival:
    """Appends where it believes the partition ends; several rivals believe so for the same partition."""

    def __init__(self, means: Means, name: str, topic: str, partition: int) -> None:
        self._means = means
        self._name = name
        self._topic = topic
        self._partition = partition
        self._chance = Chance(means.workload, name)
        self._next = 0
        self._end = 0

    async def run(self) -> None:
        while not self._means.stopping.is_set():
            first, count = self._next, 1 + self._chance.below(3)
            self._next += count
            answer = await self._attempt(first, count)
            if answer.ok:
                self._end = answer.body["partitions"][0]["base_offset"] + count
            elif answer.code == CONFLICT:
                self._end = answer.body["next_offset"]
            await self._means.pause(self._chance.pause_s())

    async def _attempt(self, first: int, count: int) -> Answer:
        path = f"/v1/topics/{self._topic}/partitions/{self._partition}/records?expected_offset={self._end}"
        body = lines_of(self._name, first, count)
        answer = await self._means.caller.post(self._chance.broker() + path, body, {"Content-Type": "text/plain"})
        self._means.recorder.append(
            self._name, self._topic, self._partition, first, count, answer, expected_offset=self._end
        )
        return answer


def lines_of(client: str, first: int, count: int) -> bytes:
    """Values, one per line."""
    return "".join(f"{Value(client, number).text}\n" for number in range(first, first + count)).encode()
