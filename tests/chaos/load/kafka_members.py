"""Members of consumer groups over Kafka's protocol: of librdkafka in a group of KIP-848, of aiokafka in a classic
group.

They read, commit, leave and come back. A client of Kafka does not show its heartbeats or epochs, so the judge has no
tenures of these members. It knows where they began, what they were given and what they committed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    IllegalStateError,
    KafkaError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka import KafkaError as LibrdkafkaError
from tests.chaos.checker.history import Outcome
from tests.chaos.load.calls import Answer
from tests.chaos.load.group_recorder import STALE, GroupRecorder, Place
from tests.chaos.load.kafka_producers import started, stop
from tests.chaos.load.means import Means
from tests.chaos.load.values import runs_of
from tests.chaos.load.workload import Chance

POLL_S = 0.5
READ_MAX = 500
LEAVES = 60
"""How many steps there are for each time that a member leaves."""
KAFKA_READS = "reads by members that are clients of Kafka"
EPOCH = 1
"""Of all commits and reads, because the members do not know it."""
SESSION_S = 6.0
UNKNOWN = "unavailable"
"""The code of a commit that got no answer."""
_E = LibrdkafkaError
REFUSED = frozenset(
    (
        _E.ILLEGAL_GENERATION,
        _E.UNKNOWN_MEMBER_ID,
        _E.REBALANCE_IN_PROGRESS,
        _E.STALE_MEMBER_EPOCH,
        _E.FENCED_MEMBER_EPOCH,
    )
)
"""The member is not in the group any more, or its epoch is over."""
NO_ANSWER = frozenset(
    (_E._TRANSPORT, _E._TIMED_OUT, _E._WAIT_COORD, _E.REQUEST_TIMED_OUT, _E.COORDINATOR_NOT_AVAILABLE)
)

Record = tuple[Place, int, str | None, str | None]
"""Place, offset, value, key."""


@dataclass
class Reading:
    """What one member does, for the history. Each time that it gets a partition is a session of its own for the rules
    on reading; it begins with the first record that comes, because a client of Kafka says no earlier where it
    begins."""

    means: Means
    name: str
    group: str
    positions: dict[Place, int] = field(default_factory=dict)
    _arrived: list[Record] = field(default_factory=list)
    _sessions: dict[Place, str] = field(default_factory=dict)
    _since: dict[Place, float] = field(default_factory=dict)
    _tenures: int = 0

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._recorder = GroupRecorder(self.means.recorder, self.group, SESSION_S)

    def assigned(self, places: Iterable[Place]) -> None:
        self.lost(places)
        for place in places:
            self._since[place] = time.monotonic()

    def lost(self, places: Iterable[Place]) -> None:
        self.flush()
        for place in places:
            for told in (self.positions, self._sessions, self._since):
                told.pop(place, None)

    def take(self, record: Record) -> None:
        """The next record; it counts from the next `flush` on."""
        self._arrived.append(record)

    def flush(self) -> None:
        """Record what was taken."""
        now = time.monotonic()
        of_places: dict[Place, list[tuple[int, str | None, str | None]]] = {}
        for place, offset, value, key in self._arrived:
            of_places.setdefault(place, []).append((offset, value, key))
        self._arrived.clear()
        for place, found in of_places.items():
            self._read(place, found, now)

    def committed(self, offsets: Mapping[Place, int], code: str, start: float) -> None:
        """A commit has ended; `code` is empty for success. The client sends a commit again by itself, so one that is
        refused in the end may have been stored before."""
        answer = Answer(0 if code else 200, code, start, time.monotonic())
        outcome = Outcome.UNKNOWN if code == STALE else None
        self._loop.call_soon_threadsafe(self._recorder.commit, self.name, offsets, EPOCH, answer, outcome)

    def failed(self, told: object) -> None:
        """The client gave up."""
        self._loop.call_soon_threadsafe(self.means.recorder.failed, self.name, repr(told))

    def _read(self, place: Place, found: Sequence[tuple[int, str | None, str | None]], now: float) -> None:
        first, after = found[0][0], found[-1][0] + 1
        if place not in self.positions:
            self._tenures += 1
            self.positions[place], self._sessions[place] = first, f"{self.name}.{self._tenures}"
            start = Answer(200, "", self._since.get(place, now), now)
            self._loop.call_soon_threadsafe(self._recorder.start, self.name, place, first, start)
        at, session = self.positions[place], self._sessions[place]
        self.positions[place] = after
        self._loop.call_soon_threadsafe(self.means.recorder.streamed, session, *place, at, runs_of(found), now)
        read, answer = (self.name, place, at, range(at, after), EPOCH), Answer(200, "", now, now)
        self._loop.call_soon_threadsafe(partial(self._recorder.read, *read, answer, polled=False))
        self._loop.call_soon_threadsafe(self.means.recorder.counts.update, (KAFKA_READS,))


class LibrdkafkaMember:
    """A consumer of librdkafka with ``group.protocol=consumer``, in a thread."""

    def __init__(self, means: Means, name: str, group: str, topic: str) -> None:
        self._means, self._name, self._group, self._topic = means, name, group, topic
        self._chance = Chance(means.workload, name)
        self._lives = 0

    async def run(self) -> None:
        while not self._means.stopping.is_set():
            self._lives += 1
            reading = Reading(self._means, f"{self._name}-{self._lives}", self._group)
            await asyncio.to_thread(self._live, reading)

    def _live(self, reading: Reading) -> None:
        settings = {"group.protocol": "consumer", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": self._means.workload.kafka, "group.id": self._group, **settings})

        def assigned(_: Consumer, parts: Sequence[TopicPartition]) -> None:
            reading.assigned(_places(parts))

        def revoked(_: Consumer, parts: Sequence[TopicPartition]) -> None:
            _commit(consumer, reading, _places(parts))
            reading.lost(_places(parts))

        def lost(_: Consumer, parts: Sequence[TopicPartition]) -> None:
            reading.lost(_places(parts))

        consumer.subscribe([self._topic], on_assign=assigned, on_revoke=revoked, on_lost=lost)
        try:
            while not self._means.stopping.is_set() and self._chance.below(LEAVES):
                self._step(consumer, reading)
        except KafkaException as error:
            reading.failed(error)
        finally:
            consumer.close()

    def _step(self, consumer: Consumer, reading: Reading) -> None:
        """Each message is taken before the next call: in that, partitions may come and go."""
        for number in range(READ_MAX):
            message = consumer.poll(0 if number else POLL_S)
            if message is None:
                break
            if message.error():
                raise KafkaException(message.error())
            reading.take(_record(message))
        _commit(consumer, reading)


def _commit(consumer: Consumer, reading: Reading, places: Set[Place] | None = None) -> None:
    """Commit the positions in all places, or in some."""
    reading.flush()
    offsets = {place: at for place, at in reading.positions.items() if places is None or place in places}
    if not offsets:
        return
    start, code = time.monotonic(), ""
    try:
        told = consumer.commit(
            offsets=[TopicPartition(*place, at) for place, at in offsets.items()], asynchronous=False
        )
        failures = [each.error for each in told if each.error]
    except KafkaException as error:
        failures = [error.args[0]]
    if failures:
        code = STALE if failures[0].code() in REFUSED else UNKNOWN
        if failures[0].code() not in REFUSED | NO_ANSWER:
            reading.failed(failures[0])
    reading.committed(offsets, code, start)


def _places(parts: Iterable[TopicPartition]) -> set[Place]:
    return {(part.topic, part.partition) for part in parts}


def _record(message: Message) -> Record:
    place = str(message.topic()), int(message.partition() or 0)
    return place, int(message.offset() or 0), _text(message.value()), _text(message.key())


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="replace")


class AiokafkaMember(ConsumerRebalanceListener):  # type: ignore[misc]
    """A consumer of aiokafka in a classic group."""

    def __init__(self, means: Means, name: str, group: str, topic: str) -> None:
        self._means, self._name, self._group, self._topic = means, name, group, topic
        self._chance = Chance(means.workload, name)
        self._lives = 0
        self._reading: Reading
        self._consumer: AIOKafkaConsumer

    async def run(self) -> None:
        while not self._means.stopping.is_set():
            self._lives += 1
            self._reading = Reading(self._means, f"{self._name}-{self._lives}", self._group)
            await asyncio.to_thread(asyncio.run, self._live())

    async def on_partitions_revoked(self, revoked: Iterable[AiokafkaPartition]) -> None:
        """Called before the member joins again; until then records may still come."""
        await self._commit()

    async def on_partitions_assigned(self, assigned: Iterable[AiokafkaPartition]) -> None:
        self._reading.lost(tuple(self._reading.positions))
        self._reading.assigned([(each.topic, each.partition) for each in assigned])

    async def _live(self) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self._means.workload.kafka,
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=int(SESSION_S * 1000),
        )
        try:
            if await started(self._means, self._consumer):
                self._consumer.subscribe([self._topic], listener=self)
            while not self._means.stopping.is_set() and self._chance.below(LEAVES):
                await self._step()
        except (KafkaError, OSError) as error:
            self._reading.failed(error)
        finally:
            await stop(self._consumer)

    async def _step(self) -> None:
        found = await self._consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=READ_MAX)
        for part, messages in found.items():
            place = (part.topic, part.partition)
            for each in messages:
                self._reading.take((place, each.offset, _text(each.value), _text(each.key)))
        await self._commit()

    async def _commit(self) -> None:
        self._reading.flush()
        offsets, start, code = dict(self._reading.positions), time.monotonic(), ""
        if not offsets:
            return
        try:
            await self._consumer.commit({AiokafkaPartition(*place): at for place, at in offsets.items()})
        except (CommitFailedError, IllegalGenerationError, UnknownMemberIdError, RebalanceInProgressError):
            code = STALE
        except IllegalStateError:  # not assigned any more: the client did not send it
            return
        except KafkaError:
            code = UNKNOWN
        self._reading.committed(offsets, code, start)
