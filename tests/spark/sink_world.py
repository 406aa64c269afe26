"""A sink without Spark: rows that are staged as a task stages them, and committed as the driver commits them.

Each row's value says its batch, the attempt that staged it and its number, so that the judge can tell whether a batch
is in the log once, and of one attempt only.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import httpx
import pyarrow as pa

from tidelog.spark_connector.reads.broker_connection import BrokerConnection, Buffer
from tidelog.spark_connector.sinks.committed_batch import StagedPart
from tidelog.spark_connector.sinks.sink_commit import SinkCommit
from tidelog.spark_connector.sinks.sink_partitions import KnownTopics
from tidelog.spark_connector.sinks.staged_rows import StagedRows
from tidelog.spark_connector.sinks.staging_area import StagingArea
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime

if TYPE_CHECKING:
    from tidelog.services.settings.settings import Settings

TASKS = 6
"""More than the batches of a producer that a leader remembers. Each partition gets a part of each task."""
ROWS = 6
PARTITIONS = 2
NEVER = 10**9

T = TypeVar("T")


class Crash(BaseException):
    """The process ends here. No `except Exception` may catch it."""


@dataclass
class Calls:
    """Counts the calls of one process over all its connections. It crashes at call `last`, before or right after that
    took effect; from then on no call gets through. With `gate`, it stops there until the gate opens."""

    last: int = NEVER
    after: bool = False
    gate: threading.Event | None = None
    reached: threading.Event = field(default_factory=threading.Event)
    count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, call: Callable[[], T]) -> T:
        with self._lock:
            number, self.count = self.count, self.count + 1
        if number == self.last and self.gate:
            self.reached.set()
            assert self.gate.wait(30)
            return call()
        if number > self.last and not self.gate:
            raise Crash("a dead process calls nobody")
        if number == self.last and not self.after:
            raise Crash("before the call")
        try:
            return call()
        finally:
            if number == self.last and self.after:
                raise Crash("after the call")


class CountedConnection(BrokerConnection):
    """A connection whose calls are those of a process that may crash."""

    def __init__(self, url: str, calls: Calls) -> None:
        super().__init__(url, 2)
        self._calls = calls

    def get(self, path: str, accept: str = "application/json") -> bytes:
        return self._calls.run(lambda: super(CountedConnection, self).get(path, accept))

    def put(self, path: str, body: Buffer, media: str) -> None:
        self._calls.run(lambda: super(CountedConnection, self).put(path, body, media))

    def post(self, path: str, body: bytes, headers: object) -> bytes:
        return self._calls.run(lambda: super(CountedConnection, self).post(path, body, headers))  # type: ignore[arg-type]

    def delete(self, path: str) -> None:
        self._calls.run(lambda: super(CountedConnection, self).delete(path))


@dataclass
class BatchTarget:
    """A broker, and how many tasks stage a batch for it."""

    url: str
    tasks: int

    @cached_property
    def http(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=30, trust_env=False)

    def create_topic(self, name: str, partitions: int = PARTITIONS, **configs: object) -> None:
        body = {"name": name, "partitions": partitions, "configs": configs}
        self.http.post("/v1/topics", json=body).raise_for_status()

    def objects(self, sink: str) -> list[str]:
        found = self.http.get(f"/v1/staging/{sink}").json()["objects"]
        return [f"{each['batch']}/{each['name']}" for each in found]

    def values(self, topic: str, partition: int) -> list[str]:
        """All values of the partition."""
        found: list[str] = []
        position, end = 0, 1
        while position < end:
            path, query = f"/v1/topics/{topic}/partitions/{partition}/records", {"offset": position}
            answer = self.http.get(path, params=query).json()
            found += [record["value"] for record in answer["records"]]
            position, end = answer["next_offset"], answer["high_watermark"]
        return found


class SinkWorld(BatchTarget):
    """A broker in this process."""

    def __init__(self, store: ObjectStore | None = None, tasks: int = TASKS, settings: Settings | None = None) -> None:
        from tests.http.conftest import SETTINGS  # here, because a process of `sink_process` starts faster without
        from tests.http.running_server import RunningServer

        self._server = RunningServer(replace(settings or SETTINGS, connections_max=200), store)
        self._tasks = tasks

    def __enter__(self) -> SinkWorld:
        self._server.__enter__()
        super().__init__(self._server.url, self._tasks)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.http.close()
        self._server.__exit__(kind, error, at)


def rows(batch: int, attempt: str, task: int, count: int = ROWS) -> pa.RecordBatch:
    """Rows of a task, with the column `partition`."""
    values = [f"{batch}:{attempt}:{task}:{number}" for number in range(count)]
    partitions = [number % PARTITIONS for number in range(count)]
    return pa.record_batch({"value": pa.array(values), "partition": pa.array(partitions, pa.int32())})


def stage(world: BatchTarget, sink: str, batch: int, attempt: str, topic: str) -> list[StagedPart]:
    """Stage the rows of all tasks of an attempt."""
    parts: list[StagedPart] = []
    with BrokerConnection(world.url) as connection:
        for task in range(world.tasks):
            area, topics = StagingArea(sink, connection), KnownTopics(connection)
            staged = StagedRows(area, batch, task, topics, Runtime().entropy, topic)
            staged.add(rows(batch, attempt, task))
            parts += staged.finish()
    return parts


def commit(
    world: BatchTarget, sink: str, batch: int, parts: Sequence[StagedPart], calls: Calls | None = None, first: int = 0
) -> None:
    """Commit as one process, which ends as `calls` says."""
    counted = calls or Calls()

    def connect() -> BrokerConnection:
        return CountedConnection(world.url, counted)

    with connect() as connection:
        SinkCommit(connect, StagingArea(sink, connection), Runtime(), first).commit(batch, parts)


def attempt(world: BatchTarget, sink: str, batch: int, name: str, topic: str, calls: Calls | None = None) -> None:
    """Stage and commit a batch, as Spark does after each start."""
    commit(world, sink, batch, stage(world, sink, batch, name, topic), calls)


def check_once(world: BatchTarget, topic: str, batches: int) -> dict[int, str]:
    """Each batch is in `topic` once and in order, with the rows of one attempt. Returns the attempts."""
    chosen: dict[int, str] = {}
    for partition in range(PARTITIONS):
        found = [value.split(":") for value in world.values(topic, partition)]
        assert [int(batch) for batch, *_ in found] == sorted(int(batch) for batch, *_ in found)
        for batch in range(batches):
            of_batch = [each for each in found if int(each[0]) == batch]
            names = Counter(name for _, name, _, _ in of_batch)
            assert len(names) == 1, f"batch {batch} of partition {partition} holds rows of {names}"
            name = next(iter(names))
            assert chosen.setdefault(batch, name) == name
            mine = [(task, number) for task in range(world.tasks) for number in range(partition, ROWS, PARTITIONS)]
            assert [(int(task), int(number)) for _, _, task, number in of_batch] == mine
        assert len(found) == batches * world.tasks * ROWS // PARTITIONS
    return chosen
