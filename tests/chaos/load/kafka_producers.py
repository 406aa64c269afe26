"""Clients of Kafka that append: idempotent producers of librdkafka and of aiokafka, and one that lets aiokafka place
keys.

They know all brokers and should survive every fault. If one gives up, the run fails; the client is opened again, so
that the rest of the run continues. The values have the numbers of the order in which they were sent.

Clients of aiokafka run in threads with loops of asyncio. On uvloop they fail if a connection ends while they write to
it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.structs import RecordMetadata
from confluent_kafka import KafkaException, Message, Producer
from tests.chaos.load.calls import Answer
from tests.chaos.load.means import RETRY_PAUSE_S, Means
from tests.chaos.load.value_client import KEYS
from tests.chaos.load.values import Value
from tests.chaos.load.workload import Chance

FLUSH_S_MAX = 80.0
RECORDS_MAX = 4
"""Of a step, because each of them is an append of its own in the history."""
OPEN_MAX = 40
"""Values of a producer that are not delivered yet."""
TIMEOUT_MS = 120_000
"""aiokafka drops a record that has had no leader for this long, and leaves a gap in its sequence. The longest fault is
shorter."""

Sending = Sequence[tuple[int, asyncio.Future[RecordMetadata]]]
"""The numbers of values, and where the client will say that they are."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The place of the `number`-th value."""

    number: int
    partition: int
    offset: int


class Deliveries:
    """Records the values of one life of a producer as they are delivered. `partition`: None if the client chooses it.
    Safe in one thread, which need not be that of the loop."""

    def __init__(self, means: Means, name: str, topic: str, partition: int | None) -> None:
        self._means, self._name, self._topic, self._partition = means, name, topic, partition
        self._loop = asyncio.get_running_loop()
        self._sent_at: list[float] = []
        self._keys: list[str] = []
        self._open: set[int] = set()

    def room(self, wanted: int) -> int:
        """How many values may be sent now."""
        return min(wanted, OPEN_MAX - len(self._open))

    def next_value(self, key: str = "") -> Value:
        """A value that is sent now."""
        number = len(self._sent_at)
        self._sent_at.append(time.monotonic())
        self._keys.append(key)
        self._open.add(number)
        return Value(self._name, number, key)

    def delivered(self, deliveries: Iterable[Delivery]) -> None:
        """Each value is recorded as an append of its own: the client does not say which it has sent together."""
        for each in deliveries:
            self._open.discard(each.number)
            placed = {"partition": each.partition, "base_offset": each.offset, "count": 1}
            start = self._sent_at[each.number]
            self._record(each.number, Answer(200, "", start, time.monotonic(), {"partitions": [placed]}))

    def leave_unknown(self) -> None:
        """Nobody will say where the others are."""
        for number in sorted(self._open):
            self._record(number, Answer(0, "undelivered", self._sent_at[number], time.monotonic()))

    def failed(self, told: object) -> None:
        """The client gave up."""
        self._loop.call_soon_threadsafe(self._means.recorder.failed, self._name, repr(told))

    def _record(self, number: int, answer: Answer) -> None:
        keys = [self._keys[number]] if self._keys[number] else []
        sequenced = self._partition is not None

        def record() -> None:
            recorder = self._means.recorder
            place = (self._topic, self._partition)
            recorder.append(self._name, *place, number, 1, answer, keys=keys, sequenced=sequenced)

        self._loop.call_soon_threadsafe(record)


async def started(means: Means, client: AIOKafkaProducer | AIOKafkaConsumer) -> bool:
    """Start it; the client itself tries each address once. False if the load stops before."""
    while not means.stopping.is_set():
        try:
            await client.start()
        except (KafkaError, OSError):
            await asyncio.sleep(RETRY_PAUSE_S)
        else:
            return True
    return False


async def stop(client: AIOKafkaProducer | AIOKafkaConsumer) -> None:
    """Stop it, whatever it raises: aiokafka may raise the cancellation of a task of its own."""
    await asyncio.wait([asyncio.create_task(client.stop())])


class LibrdkafkaProducer:
    """An idempotent producer of librdkafka, with the settings that it has by default."""

    def __init__(self, means: Means, topic: str, partition: int) -> None:
        self._means, self._topic, self._partition = means, topic, partition
        self._lives = 0

    async def run(self) -> None:
        while not self._means.stopping.is_set():
            self._lives += 1
            name = f"librdkafka-{self._partition}-{self._lives}"
            life = Deliveries(self._means, name, self._topic, self._partition)
            await asyncio.to_thread(self._live, Chance(self._means.workload, name), life)

    def _live(self, chance: Chance, life: Deliveries) -> None:
        arrived: list[Delivery] = []
        failures: list[str] = []

        def on_delivery(number: int, error: object, message: Message) -> None:
            if error is None:
                arrived.append(Delivery(number, self._partition, message.offset() or 0))
            else:
                failures.append(str(error))

        producer = Producer({"bootstrap.servers": self._means.workload.kafka, "enable.idempotence": True})
        try:
            while not self._means.stopping.is_set() and not failures:
                for _ in range(life.room(1 + chance.below(RECORDS_MAX))):
                    value = life.next_value()
                    producer.produce(
                        self._topic,
                        value.text.encode(),
                        partition=self._partition,
                        on_delivery=partial(on_delivery, value.number),
                    )
                _poll_for(producer, chance.pause_s())
                life.delivered(arrived)
                arrived.clear()
            producer.flush(FLUSH_S_MAX)
        except KafkaException as error:
            failures.append(repr(error))
        life.delivered(arrived)
        life.leave_unknown()
        for told in failures[:1]:
            life.failed(told)


def _poll_for(producer: Producer, seconds: float) -> None:
    """Take deliveries for that time."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        producer.poll(left)


class AiokafkaProducer:
    """An idempotent producer of aiokafka. Without a `partition` it sends keys, which the client places (murmur2)."""

    def __init__(self, means: Means, topic: str, partition: int | None) -> None:
        self._means, self._topic, self._partition = means, topic, partition
        self._lives = 0

    async def run(self) -> None:
        while not self._means.stopping.is_set():
            self._lives += 1
            kind = "keyed" if self._partition is None else self._partition
            name = f"aiokafka-{kind}-{self._lives}"
            life = Deliveries(self._means, name, self._topic, self._partition)
            await asyncio.to_thread(asyncio.run, self._live(Chance(self._means.workload, name), life))

    async def _live(self, chance: Chance, life: Deliveries) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._means.workload.kafka, enable_idempotence=True, request_timeout_ms=TIMEOUT_MS
        )
        try:
            if await started(self._means, producer):
                await self._work(producer, chance, life)
        except (KafkaError, OSError) as error:
            life.failed(error)
        finally:
            await stop(producer)
            life.leave_unknown()

    async def _work(self, producer: AIOKafkaProducer, chance: Chance, life: Deliveries) -> None:
        """Send in order, without waiting for the deliveries of what was sent before."""
        waiting: set[asyncio.Task[None]] = set()
        while not self._means.stopping.is_set():
            waiting.add(asyncio.create_task(_await(await self._send(producer, chance, life), life)))
            await asyncio.sleep(chance.pause_s())
            for done in [task for task in waiting if task.done()]:
                waiting.remove(done)
                done.result()
        await asyncio.wait_for(asyncio.gather(*waiting), FLUSH_S_MAX)

    async def _send(self, producer: AIOKafkaProducer, chance: Chance, life: Deliveries) -> Sending:
        sent = []
        for _ in range(life.room(1 + chance.below(RECORDS_MAX))):
            key = f"k{chance.below(KEYS)}" if self._partition is None else ""
            value = life.next_value(key)
            chosen = key.encode() or None
            delivery = await producer.send(self._topic, value.text.encode(), key=chosen, partition=self._partition)
            sent.append((value.number, delivery))
        return sent


async def _await(sent: Sending, life: Deliveries) -> None:
    arrived = []
    for number, delivery in sent:
        placed = await delivery
        arrived.append(Delivery(number, placed.partition, placed.offset))
    life.delivered(arrived)
