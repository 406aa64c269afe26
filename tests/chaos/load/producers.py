"""Clients that append: with sequences, without, to a partition that the service chooses, and as rivals.

A client with sequences sends a batch again, to any broker, until it is acknowledged; the sequence makes that safe.
"""

from __future__ import annotations

import asyncio

from tests.chaos.checker.history import Acks
from tests.chaos.load.calls import CONFLICT
from tests.chaos.load.means import RETRY_PAUSE_S, Means
from tests.chaos.load.topics import FAST
from tests.chaos.load.value_client import RARELY, Sending, ValueClient


class SequencedProducer(ValueClient):
    """The only writer with a sequence to one partition."""

    def __init__(self, means: Means, name: str, topic: str, partition: int) -> None:
        super().__init__(means, name)
        self._sending = Sending(topic, partition, sequenced=True)

    async def _step(self) -> None:
        batch = self._new_batch()
        answer = await self._send(batch, self._sending)
        while not answer.ok and answer.expected:
            await asyncio.sleep(RETRY_PAUSE_S)
            answer = await self._send(batch, self._sending)
        if not answer.ok:
            await self._means.stopping.wait()  # refused for good: the report shows it


class PlainProducer(ValueClient):
    """Writes without sequences to random partitions."""

    def __init__(self, means: Means, name: str, topic: str) -> None:
        super().__init__(means, name)
        self._topic = topic

    async def _step(self) -> None:
        partition = self._chance.below(self._means.workload.partitions[self._topic])
        await self._send(self._new_batch(), Sending(self._topic, partition))


class SpreadingProducer(ValueClient):
    """Lets the service choose the partition: by the key, or freely for a request without keys."""

    def __init__(self, means: Means, name: str, topic: str, *, keyed: bool) -> None:
        super().__init__(means, name)
        self._topic = topic
        self._keyed = keyed

    async def _step(self) -> None:
        await self._send(self._new_batch(keyed=self._keyed), Sending(self._topic, partition=None))


class Rival(ValueClient):
    """Appends where it believes the partition ends; several rivals believe so for the same partition."""

    def __init__(self, means: Means, name: str, topic: str, partition: int) -> None:
        super().__init__(means, name)
        self._topic = topic
        self._partition = partition
        self._end = 0

    async def _step(self) -> None:
        batch = self._new_batch(1 + self._chance.below(3))
        answer = await self._send(batch, Sending(self._topic, self._partition, expected_offset=self._end))
        if answer.ok:
            self._end = answer.body["partitions"][0]["base_offset"] + batch.count
        elif answer.code == CONFLICT:
            self._end = answer.body["next_offset"]


class FastProducer(ValueClient):
    """Sends with acks=0 or acks=1, which promise less."""

    pauses = RARELY

    def __init__(self, means: Means, name: str, acks: Acks) -> None:
        super().__init__(means, name)
        self._acks = acks

    async def _step(self) -> None:
        await self._send(self._new_batch(), Sending(FAST, acks=self._acks))
