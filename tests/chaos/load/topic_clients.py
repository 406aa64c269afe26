"""Clients of topics that change: keys are overwritten, records and whole topics deleted, partitions added."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
from collections.abc import Sequence, Set

import pyarrow as pa
from tests.chaos.checker.history import Acks, Outcome
from tests.chaos.load.calls import ARROW as ARROW_MEDIA_TYPE
from tests.chaos.load.calls import Answer
from tests.chaos.load.producers import KEYS, RETRY_PAUSE_S, Means, lines_of
from tests.chaos.load.readers import ask_end, read_whole
from tests.chaos.load.topics import COMPACTED, FAST, GROWING, REMADE, TRIMMED
from tests.chaos.load.values import Value
from tests.chaos.load.workload import Chance

PAUSES = 4
"""How many times more rarely these clients act than a plain producer."""
CHANGE_PAUSES = 20
"""How many times more rarely records are deleted and partitions added."""
PARTITIONS_MAX = 6
REMADE_BATCHES = 4
JSON_BODY = {"Content-Type": "application/json"}


class FastProducer:
    """Sends with acks=0 or acks=1, which promise less."""

    def __init__(self, means: Means, name: str, acks: Acks) -> None:
        self._means = means
        self._name = name
        self._acks = acks
        self._chance = Chance(means.workload, name)
        self._next = 0

    async def run(self) -> None:
        while not self._means.stopping.is_set():
            first, count = self._next, self._chance.records()
            self._next += count
            url = f"{self._chance.broker()}/v1/topics/{FAST}/partitions/0/records?acks={self._acks.value}"
            body = lines_of(self._name, first, count)
            answer = await self._means.caller.post(url, body, {"Content-Type": "text/plain"})
            self._means.recorder.append(self._name, FAST, 0, first, count, answer, acks=self._acks)
            await self._means.pause(PAUSES * self._chance.pause_s())


class Overwriter:
    """Writes the same few keys repeatedly to the compacted topic."""

    def __init__(self, means: Means, name: str) -> None:
        self._means = means
        self._name = name
        self._chance = Chance(means.workload, name)
        self._next = 0

    async def run(self) -> None:
        while not self._means.stopping.is_set():
            first, count = self._next, self._chance.records()
            self._next += count
            keys = [f"k{self._chance.below(KEYS)}" for _ in range(count)]
            url = f"{self._chance.broker()}/v1/topics/{COMPACTED}/partitions/0/records"
            answer = await self._means.caller.post(url, keyed_body(self._name, first, keys), JSON_BODY)
            self._means.recorder.append(self._name, COMPACTED, 0, first, count, answer, keys=keys)
            await self._means.pause(PAUSES * self._chance.pause_s())


class Appender:
    """Appends to partition 0 of a topic. A subclass changes the topic from time to time."""

    _partition: int | None = 0
    _media_type = "text/plain"

    def __init__(self, means: Means, name: str, topic: str) -> None:
        self._means = means
        self._name = name
        self._topic = topic
        self._chance = Chance(means.workload, name)
        self._next = 0

    async def run(self) -> None:
        while not self._means.stopping.is_set():
            for _ in range(CHANGE_PAUSES // PAUSES):
                await self._append()
                await self._means.pause(PAUSES * self._chance.pause_s())
            await self._change()

    async def _append(self) -> None:
        first, count = self._next, self._chance.records()
        self._next += count
        url = f"{self._chance.broker()}/v1/topics/{self._topic}{self._partition_path}/records"
        answer = await self._means.caller.post(url, self._body(first, count), {"Content-Type": self._media_type})
        self._means.recorder.append(self._name, self._topic, self._partition, first, count, answer)

    def _body(self, first: int, count: int) -> bytes:
        return lines_of(self._name, first, count)

    @property
    def _partition_path(self) -> str:
        return "" if self._partition is None else f"/partitions/{self._partition}"

    async def _change(self) -> None:
        """Change nothing: the settings of the topic delete its records."""


class ArrowAppender(Appender):
    """Sends its records as Arrow."""

    _media_type = ARROW_MEDIA_TYPE

    def _body(self, first: int, count: int) -> bytes:
        values = [Value(self._name, number).text.encode() for number in range(first, first + count)]
        table, sink = pa.table({"value": pa.array(values, pa.binary())}), io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        return sink.getvalue()


class Trimmer(Appender):
    """Deletes the older half of the partition's records."""

    def __init__(self, means: Means, name: str) -> None:
        super().__init__(means, name, TRIMMED)

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

    _partition = None

    def __init__(self, means: Means, name: str) -> None:
        super().__init__(means, name, GROWING)
        self._partitions = 1

    async def _change(self) -> None:
        if self._partitions < PARTITIONS_MAX:
            body = json.dumps({"partitions": self._partitions + 1}).encode()
            url = f"{self._chance.broker()}/v1/topics/{GROWING}"
            answer = await self._means.caller.call("PATCH", url, body, JSON_BODY)
            self._means.recorder.changed(self._name, GROWING, answer)
            self._partitions += answer.ok


class Remaker:
    """Creates a topic, fills it, reads it to its end, deletes it, and creates it again under the same name.

    In the history each life of the name is a separate topic. A life ends when every broker says that the topic does not
    exist: until then a broker may append to the deleted topic. After a request with an unknown outcome the next life
    gets another name, because the request may still arrive.
    """

    def __init__(self, means: Means, name: str) -> None:
        self._means = means
        self._name = name
        self._chance = Chance(means.workload, name)
        self._next = 0

    async def run(self) -> None:
        names = 0
        for life in itertools.count(1):
            if self._means.stopping.is_set():
                return
            topic = f"{REMADE}-{names}"
            clean = await self._live(topic, f"{topic}#{life}")
            names += not clean

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
        first, count = self._next, self._chance.records()
        self._next += count
        url = f"{self._chance.broker()}/v1/topics/{topic}/partitions/0/records"
        body = lines_of(self._name, first, count)
        answer = await self._means.caller.post(url, body, {"Content-Type": "text/plain"})
        self._means.recorder.append(self._name, life, 0, first, count, answer)
        await self._means.pause(PAUSES * self._chance.pause_s())
        return answer.outcome

    async def _read_all(self, topic: str, life: str) -> None:
        while True:
            read = await read_whole(self._means.caller, self._chance.broker(), topic, 0)
            if not isinstance(read, Answer):
                self._means.recorder.final(life, 0, *read)
                return
            self._means.recorder.changed(self._name, topic, read)
            await asyncio.sleep(RETRY_PAUSE_S)


def keyed_body(client: str, first: int, keys: Sequence[str]) -> bytes:
    """Values with keys, as JSON."""
    records = [{"key": key, "value": Value(client, first + n, key).text} for n, key in enumerate(keys)]
    return json.dumps({"records": records}).encode()
