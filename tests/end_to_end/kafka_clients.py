"""Clients of Kafka as programs use them: idempotent producers and members of groups of librdkafka and aiokafka.

They have the settings that they need for Kafka, and no others. A client that gives up fails the test.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

TOPIC = "events"
PACE_S = 0.01
POLL_S = 0.2
FLUSH_S_MAX = 60.0
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it tells every connection that is refused

Seen = Mapping[int, Mapping[int, bytes]]
"""The value at each offset of each partition."""


def numbered(number: int) -> bytes:
    return b"value %d" % number


class Writer:
    """Sends numbered values to one partition until `stop`. `delivered`: the offset of each number."""

    def __init__(self, bootstrap: str, partition: int) -> None:
        self.bootstrap, self.partition = bootstrap, partition
        self.sent = 0
        self.delivered: dict[int, int] = {}
        self.failures: list[str] = []
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def next_number(self) -> int:
        self.sent += 1
        return self.sent - 1

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()


class LibrdkafkaWriter(Writer):
    """In a thread."""

    async def run(self) -> None:
        await asyncio.to_thread(self._run)

    def _run(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        while not self.is_stopping and not self.failures:
            number = self.next_number()
            producer.produce(TOPIC, numbered(number), partition=self.partition, on_delivery=self._noting(number))
            producer.poll(PACE_S)
        assert producer.flush(FLUSH_S_MAX) == 0, "records are not delivered"

    def _noting(self, number: int) -> Callable[[KafkaError | None, Message], None]:
        def note(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.delivered[number] = int(message.offset() or 0)
            else:
                self.failures.append(f"{number}: {error}")

        return note


class AiokafkaWriter(Writer):
    """In the loop."""

    async def run(self) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, enable_idempotence=True)
        await producer.start()
        sent: list[asyncio.Future[None]] = []
        while not self.is_stopping:
            number = self.next_number()
            delivery = await producer.send(TOPIC, numbered(number), partition=self.partition)
            sent.append(asyncio.ensure_future(self._note(number, delivery)))
            await asyncio.sleep(PACE_S)
        await asyncio.wait_for(asyncio.gather(*sent), FLUSH_S_MAX)
        await producer.stop()

    async def _note(self, number: int, delivery: Awaitable[object]) -> None:
        self.delivered[number] = (await delivery).offset  # type: ignore[attr-defined]


class GroupReader:
    """A member of a group that reads until `stop`, and commits as its client does it by default."""

    def __init__(self, bootstrap: str, group: str, **options: object) -> None:
        self.bootstrap, self.group, self.options = bootstrap, group, options
        self.seen: dict[int, dict[int, bytes]] = defaultdict(dict)
        self.failures: list[str] = []
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()


class LibrdkafkaReader(GroupReader):
    """In a thread."""

    async def run(self) -> None:
        await asyncio.to_thread(self._run)

    def _run(self) -> None:
        named = {name.replace("_", "."): value for name, value in self.options.items()}
        settings = {"bootstrap.servers": self.bootstrap, "group.id": self.group, "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, **named})
        consumer.subscribe([TOPIC])
        while not self.is_stopping:
            for message in consumer.consume(500, POLL_S):
                if message.error():
                    self.failures.append(str(message.error()))
                else:
                    self.seen[int(message.partition() or 0)][int(message.offset() or 0)] = message.value() or b""
        consumer.close()


class AiokafkaReader(GroupReader):
    """In the loop."""

    async def run(self) -> None:
        settings = {"bootstrap_servers": self.bootstrap, "group_id": self.group, "auto_offset_reset": "earliest"}
        consumer = AIOKafkaConsumer(TOPIC, **settings, **self.options)
        await consumer.start()
        while not self.is_stopping:
            for part, messages in (await consumer.getmany(timeout_ms=int(1000 * POLL_S))).items():
                self.seen[part.partition].update({message.offset: message.value for message in messages})
        await consumer.stop()


def committed(bootstrap: str, group: str, partitions: int) -> dict[int, int]:
    """The offsets that a group has committed."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    asked = [TopicPartition(TOPIC, number) for number in range(partitions)]
    found = consumer.committed(asked, FLUSH_S_MAX)
    consumer.close()
    return {each.partition: each.offset for each in found}


def whole_log(bootstrap: str, partition: int, end: int) -> list[bytes]:
    """The values of a partition from its beginning."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "whole log", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    values: list[bytes] = []
    while len(values) < end:
        message = consumer.poll(FLUSH_S_MAX)
        assert message is not None, f"{len(values)} of {end} records of partition {partition} came"
        assert message.error() is None
        assert message.offset() == len(values)
        values.append(message.value() or b"")
    consumer.close()
    return values
