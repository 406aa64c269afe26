"""The Python client as programs use it: a `Producer` and a `Consumer`, each with its own threads.

Both know all brokers and should survive every fault. If one gives up, the run fails; the client is opened again, so
that the rest of the run continues.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVarTuple

from tests.chaos.load.calls import Answer
from tests.chaos.load.means import Means
from tests.chaos.load.readers import runs_in
from tests.chaos.load.topics import SHIPPED
from tests.chaos.load.values import Value
from tests.chaos.load.workload import Chance

from tidelog.client import Batch, Consumer, Delivered, Producer, ProducerOptions, TopicPartition
from tidelog.storage.errors import TidelogError

SESSION = "shipped-consumer"
CONNECT_TIMEOUT_S = 60.0
POLL_S = 0.5
CATCH_UP_S_MAX = 60.0

Told = TypeVarTuple("Told")


class ShippedProducer:
    """Sends with acks=all to one partition. The values have the numbers of the producer's sequences, so a delivery
    names the values. The outcome of records without a delivery stays unknown."""

    def __init__(self, means: Means, partition: int) -> None:
        self._means = means
        self._partition = partition
        self._lives = 0

    async def run(self) -> None:
        while not self._means.stopping.is_set():
            self._lives += 1
            life = _ProducerLife(self._means, f"shipped-producer-{self._partition}-{self._lives}", self._partition)
            await asyncio.to_thread(life.run)


class _ProducerLife:
    """The life of a producer, in a thread."""

    def __init__(self, means: Means, name: str, partition: int) -> None:
        self._means = means
        self._name = name
        self._partition = partition
        self._chance = Chance(means.workload, name)
        self._sent_at: list[float] = []
        self._undelivered: set[int] = set()
        self._lock = threading.Lock()
        self._loop = asyncio.get_running_loop()

    def run(self) -> None:
        options = ProducerOptions(connect_timeout_s=CONNECT_TIMEOUT_S)
        brokers = ",".join(self._means.workload.brokers)
        try:
            with Producer(brokers, SHIPPED, options, on_delivery=self._delivered) as producer:
                while not self._means.stopping.is_set():
                    self._send(producer)
                    time.sleep(self._chance.pause_s())
        except TidelogError as error:
            self._tell(self._means.recorder.failed, self._name, repr(error))
        self._tell(self._leave_unknown)

    def _send(self, producer: Producer) -> None:
        for _ in range(self._chance.records()):
            number = len(self._sent_at)
            with self._lock:
                self._sent_at.append(time.monotonic())
                self._undelivered.add(number)
            producer.send(Value(self._name, number).text.encode(), partition=self._partition)

    def _delivered(self, delivered: Delivered) -> None:
        """Called in a sending thread."""
        first, count = delivered.first_sequence, delivered.count
        with self._lock:
            self._undelivered.difference_update(range(first, first + count))
            start = self._sent_at[first]
        places = [{"partition": delivered.partition, "base_offset": delivered.base_offset, "count": count}]
        answer = Answer(200, "", start, time.monotonic(), {"partitions": places})
        self._tell(self._record, first, count, answer)

    def _leave_unknown(self) -> None:
        for number in sorted(self._undelivered):
            self._record(number, 1, Answer(0, "undelivered", self._sent_at[number], time.monotonic()))

    def _record(self, first: int, count: int, answer: Answer) -> None:
        recorder = self._means.recorder
        recorder.append(self._name, SHIPPED, self._partition, first, count, answer, sequenced=True)

    def _tell(self, call: Callable[[*Told], object], *told: *Told) -> None:
        self._loop.call_soon_threadsafe(call, *told)


class ShippedConsumer:
    """Reads a topic from its beginning and, when the load has ended, to the end that it asks for."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._positions: dict[int, int] = {}
        self._lives = 0
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        while not self._means.stopping.is_set():
            self._lives += 1
            await asyncio.to_thread(self._live)

    def _live(self) -> None:
        try:
            with Consumer(",".join(self._means.workload.brokers), SHIPPED) as consumer:
                for partition, offset in self._positions.items():
                    consumer.seek(TopicPartition(SHIPPED, partition), offset)
                while not self._means.stopping.is_set():
                    self._take(consumer.poll(POLL_S))
                self._catch_up(consumer)
        except TidelogError as error:
            self._loop.call_soon_threadsafe(self._means.recorder.failed, SESSION, repr(error))

    def _catch_up(self, consumer: Consumer) -> None:
        ends, give_up_at = consumer.end_offsets(), time.monotonic() + CATCH_UP_S_MAX
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            self._take(consumer.poll(POLL_S))
            if time.monotonic() > give_up_at:
                told = f"stands at {dict(consumer.positions)}, {CATCH_UP_S_MAX:g} s after the ends were {dict(ends)}"
                self._loop.call_soon_threadsafe(self._means.recorder.failed, SESSION, told)
                return

    def _take(self, batch: Batch | None) -> None:
        if batch is None:
            return
        now, offset = time.monotonic(), self._positions.get(batch.partition, 0)
        rows: list[dict[str, Any]] = batch.records.select(["offset", "key", "value"]).to_pylist()
        runs = runs_in({"records": [{**row, "value": row["value"].decode()} for row in rows]})
        self._positions[batch.partition] = batch.next_offset
        streamed = self._means.recorder.streamed
        self._loop.call_soon_threadsafe(streamed, SESSION, SHIPPED, batch.partition, offset, runs, now)
