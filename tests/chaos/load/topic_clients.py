"""Clients of topics that change: keys are overwritten, records and whole topics deleted, partitions added."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Set

from tests.chaos.checker.history import Outcome
from tests.chaos.load.calls import Answer
from tests.chaos.load.means import RETRY_PAUSE_S, Means
from tests.chaos.load.readers import ask_end, read_whole
from tests.chaos.load.topics import COMPACTED, GROWING, REMADE, TRIMMED
from tests.chaos.load.value_client import RARELY, Sending, ValueClient

CHANGE_STEPS = 3
"""How many appends there are for each deletion of records and each new partition."""
PARTITIONS_MAX = 6
REMADE_BATCHES = 4
JSON_BODY = {"Content-Type": "application/json"}


class Overwriter(ValueClient):
    """Writes the same few keys repeatedly to the compacted topic."""

    pauses = RARELY

    async def _step(self) -> None:
        await self._send(self._new_batch(keyed=True), Sending(COMPACTED))


class Appender(ValueClient):
    """Appends to a topic. A subclass changes the topic from time to time."""

    pauses = RARELY

    def __init__(self, means: Means, name: str, sending: Sending) -> None:
        super().__init__(means, name)
        self._sending = sending
        self._steps = 0

    async def _step(self) -> None:
        self._steps += 1
        await self._send(self._new_batch(), self._sending)
        if self._steps % CHANGE_STEPS == 0:
            await self._change()

    async def _change(self) -> None:
        """Change nothing: the settings of the topic delete its records."""


class Trimmer(Appender):
    """Deletes the older half of the partition's records."""

    def __init__(self, means: Means, name: str) -> None:
        super().__init__(means, name, Sending(TRIMMED))

    async def _change(self) -> None:
        caller, recorder, broker = self._means.caller, self._means.recorder, self._chance.broker()
        end = await ask_end(caller, recorder, self._name, broker, TRIMMED, 0)
        if end.ok and end.body["offset"]:
            before_offset = self._chance.below(end.body["offset"])
            url = f"{broker}/v1/topics/{TRIMMED}/partitions/0/delete-records"
            answer = await caller.post(url, json.dumps({"before_offset": before_offset}).encode(), JSON_BODY)
            recorder.trim(self._name, TRIMMED, 0, before_offset, answer)


class Grower(Appender):
    """Adds partitions to the topic, and appends to the partition that the service chooses."""

    def __init__(self, means: Means, name: str) -> None:
        super().__init__(means, name, Sending(GROWING, partition=None))
        self._partitions = 1

    async def _change(self) -> None:
        if self._partitions < PARTITIONS_MAX:
            body = json.dumps({"partitions": self._partitions + 1}).encode()
            url = f"{self._chance.broker()}/v1/topics/{GROWING}"
            answer = await self._means.caller.call("PATCH", url, body, JSON_BODY)
            self._means.recorder.changed(self._name, GROWING, answer)
            self._partitions += answer.ok


class Remaker(ValueClient):
    """Creates a topic, fills it, reads it to its end, deletes it, and creates it again under the same name.

    In the history each life of the name is a separate topic. A life ends when every broker says that the topic does not
    exist: until then a broker may append to the deleted topic. After a request with an unknown outcome the next life
    gets another name, because the request may still arrive.
    """

    pauses = RARELY

    def __init__(self, means: Means, name: str) -> None:
        super().__init__(means, name)
        self._lives = 0
        self._names = 0

    async def _step(self) -> None:
        self._lives += 1
        topic = f"{REMADE}-{self._names}"
        clean = await self._live(topic, f"{topic}#{self._lives}")
        self._names += not clean

    async def _live(self, topic: str, life: str) -> bool:
        """Run one life; return whether none of its requests can still arrive."""
        created = await self._insisted("POST", "/v1/topics", {"name": topic, "partitions": 1}, {201, 409})
        outcomes = [await self._append(topic, life) for _ in range(REMADE_BATCHES)]
        await self._read_all(topic, life)
        deleted = await self._insisted("DELETE", f"/v1/topics/{topic}", None, {204, 404})
        for broker in self._means.workload.brokers:
            await self._until_forgotten(topic, broker)
        return created == deleted == 1 and Outcome.UNKNOWN not in outcomes

    async def _until_forgotten(self, topic: str, broker: str) -> None:
        """Wait until `broker` says that the topic does not exist, or until no further life begins."""
        while not self._means.stopping.is_set():
            answer = await self._means.caller.get(f"{broker}/v1/topics/{topic}")
            if answer.status == 404:
                return
            await asyncio.sleep(RETRY_PAUSE_S)

    async def _insisted(self, method: str, path: str, body: object, done: Set[int]) -> int:
        """The number of requests until the status of the answer was one of `done`."""
        for attempts in itertools.count(1):
            content = None if body is None else json.dumps(body).encode()
            url = self._chance.broker() + path
            answer = await self._means.caller.call(method, url, content, JSON_BODY)
            if answer.status in done:
                return attempts
            self._means.recorder.changed(self._name, path, answer)
            await asyncio.sleep(RETRY_PAUSE_S)
        raise AssertionError("an endless loop ended")

    async def _append(self, topic: str, life: str) -> Outcome:
        answer = await self._send(self._new_batch(), Sending(topic), recorded_topic=life)
        await self._means.pause(self.pauses * self._chance.pause_s())
        return answer.outcome

    async def _read_all(self, topic: str, life: str) -> None:
        while True:
            read = await read_whole(self._means.caller, self._chance.broker(), topic, 0)
            if not isinstance(read, Answer):
                self._means.recorder.final(life, 0, *read)
                return
            self._means.recorder.changed(self._name, topic, read)
            await asyncio.sleep(RETRY_PAUSE_S)
