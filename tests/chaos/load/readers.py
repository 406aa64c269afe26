"""Clients that read: some follow a partition from broker to broker, some read a part of its past again.

Every answer is recorded, including empty ones and failures: an empty read says that the log ended there.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import Any, Never

from tests.chaos.checker.history import Run
from tests.chaos.load.calls import OUT_OF_RANGE, Answer, Caller
from tests.chaos.load.means import RETRY_PAUSE_S, Means
from tests.chaos.load.recorder import Recorder
from tests.chaos.load.values import runs_of
from tests.chaos.load.workload import Chance

WAIT_MS = 1_000
FETCH_RECORDS_MAX = 2_000
REPLAYED_RECORDS_MAX = 10_000
REPLAY_PAUSES = 10
"""How many produces there are for each replay."""


class TailReader:
    """Follows one partition from its beginning; each fetch goes to a random broker."""

    def __init__(self, means: Means, name: str, topic: str, partition: int, *, arrow: bool = False) -> None:
        self._means = means
        self._name = name
        self._topic = topic
        self._partition = partition
        self._arrow = arrow
        self._chance = Chance(means.workload, name)

    async def run(self) -> None:
        offset = 0
        while not self._means.stopping.is_set():
            answer = await read_once(
                self._means.caller,
                self._means.recorder,
                self._name,
                self._chance.broker(),
                self._topic,
                self._partition,
                offset,
                wait_ms=WAIT_MS,
                arrow=self._arrow,
            )
            if answer.ok:
                offset = answer.body["next_offset"]
            elif answer.code == OUT_OF_RANGE:  # deleted; otherwise the judge finds it
                offset = answer.body["log_start_offset"]
            else:
                await asyncio.sleep(RETRY_PAUSE_S)


class StreamReader:
    """Follows one partition by event streams; each stream continues where the last one broke, at any broker."""

    def __init__(self, means: Means, name: str, topic: str, partition: int) -> None:
        self._means = means
        self._name = name
        self._topic = topic
        self._partition = partition
        self._chance = Chance(means.workload, name)
        self._offset = 0

    async def run(self) -> None:
        following = asyncio.create_task(self._follow_on())
        stopping = asyncio.create_task(self._means.stopping.wait())
        await asyncio.wait((following, stopping), return_when=asyncio.FIRST_COMPLETED)
        for task in (following, stopping):
            task.cancel()
        for ended in await asyncio.gather(following, return_exceptions=True):
            if not isinstance(ended, asyncio.CancelledError):
                raise ended

    async def _follow_on(self) -> Never:
        while True:
            await self._follow(str(self._offset - 1) if self._offset else "")
            await asyncio.sleep(RETRY_PAUSE_S)

    async def _follow(self, last_event_id: str) -> None:
        path = f"/v1/topics/{self._topic}/partitions/{self._partition}/records?offset=earliest"
        async with aclosing(self._means.caller.events(self._chance.broker() + path, last_event_id)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Answer):
                    self._means.recorder.read(self._name, self._topic, self._partition, self._offset, piece, [])
                    continue
                runs, now = runs_in({"records": piece}), time.monotonic()
                self._means.recorder.streamed(self._name, self._topic, self._partition, self._offset, runs, now)
                self._offset = piece[-1]["offset"] + 1


class ReplayReader:
    """Reads a part of some partition repeatedly, each time as another session."""

    def __init__(self, means: Means, name: str) -> None:
        self._means = means
        self._name = name
        self._chance = Chance(means.workload, name)
        self._replays = 0

    async def run(self) -> None:
        places = list(self._means.workload.places())
        while not self._means.stopping.is_set():
            topic, partition = places[self._chance.below(len(places))]
            await self._replay(topic, partition)
            await self._means.pause(REPLAY_PAUSES * self._chance.pause_s())

    async def _replay(self, topic: str, partition: int) -> None:
        self._replays += 1
        session, broker = f"{self._name}.{self._replays}", self._chance.broker()
        ends = await ask_end(self._means.caller, self._means.recorder, session, broker, topic, partition)
        if not ends.ok or not ends.body["offset"]:
            return
        offset = self._chance.below(ends.body["offset"])
        end = min(ends.body["offset"], offset + REPLAYED_RECORDS_MAX)
        while offset < end:
            answer = await read_once(
                self._means.caller, self._means.recorder, session, broker, topic, partition, offset
            )
            if not answer.ok or answer.body["next_offset"] == offset:
                return
            offset = answer.body["next_offset"]


async def read_once(
    caller: Caller,
    recorder: Recorder,
    session: str,
    broker: str,
    topic: str,
    partition: int,
    offset: int,
    *,
    wait_ms: int = 0,
    arrow: bool = False,
) -> Answer:
    """Make one fetch and record it."""
    query = f"offset={offset}&max_records={FETCH_RECORDS_MAX}&wait_ms={wait_ms}"
    url = f"{broker}/v1/topics/{topic}/partitions/{partition}/records?{query}"
    answer = await (caller.get_arrow(url) if arrow else caller.get(url))
    recorder.read(session, topic, partition, offset, answer, runs_in(answer.body) if answer.ok else [])
    return answer


async def ask_end(caller: Caller, recorder: Recorder, session: str, broker: str, topic: str, partition: int) -> Answer:
    """Make one query for the end of a partition and record it."""
    answer = await caller.get(f"{broker}/v1/topics/{topic}/partitions/{partition}/offset?at=latest")
    recorder.end(session, topic, partition, answer)
    return answer


def runs_in(body: Any) -> list[Run]:
    """The records of a fetch as runs. Bytes that are not text come as base64, and count as a value that nobody sent."""
    return runs_of((record["offset"], _text(record["value"]), _text(record["key"])) for record in body["records"])


async def read_finally(caller: Caller, recorder: Recorder, broker: str, topic: str, partition: int) -> None:
    """Read the whole partition, and record it as the final log."""
    read = await read_whole(caller, broker, topic, partition)
    if isinstance(read, Answer):
        raise RuntimeError(f"the final read of {topic}/{partition} failed: {read}")
    recorder.final(topic, partition, *read)


async def read_whole(caller: Caller, broker: str, topic: str, partition: int) -> tuple[int, list[Run]] | Answer:
    """The log start and all records of a partition; the failed answer, if one failed."""
    runs: list[Run] = []
    offset, start = 0, 0
    while True:
        url = f"{broker}/v1/topics/{topic}/partitions/{partition}/records"
        answer = await caller.get(f"{url}?offset={offset}&max_records={FETCH_RECORDS_MAX}")
        if answer.code == OUT_OF_RANGE and offset < answer.body["log_start_offset"]:  # also if it moves meanwhile
            runs, offset = [], answer.body["log_start_offset"]
            start = offset
        elif not answer.ok:
            return answer
        else:
            runs += runs_in(answer.body)
            if not answer.body["records"] and offset >= answer.body["high_watermark"]:
                return start, runs
            offset = answer.body["next_offset"]


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else repr(value)
