"""Producers for tests that move, pause and kill leaders. They record every acknowledgement, so that a test can check
the log.

Each producer is idempotent and sends its batches in order, each to another broker. It sends a batch again with the same
sequence until it is acknowledged. So at the end each of its records is in the log exactly once.
"""

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tests.anybody import ANYBODY
from tests.broker.direct_peers import DirectPeers
from tests.broker.drafts import draft, offsets_of, values_of

from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions, ProducerSequence
from tidelog.storage.errors import Fenced, Unavailable

PAGE = FetchLimits(1_000, 1 << 20)


class Brokers(Protocol):
    """The view of a cluster that a producer needs."""

    @property
    def brokers(self) -> Mapping[str, Broker]: ...

    @property
    def peers(self) -> DirectPeers: ...


@dataclass
class Producer:
    """Sends numbered records to one partition until it is stopped."""

    world: Brokers
    name: str
    topic: str
    partition: int
    acknowledged: list[tuple[int, bytes]] = field(default_factory=list)
    retries: int = 0
    longest_wait_s: float = 0.0
    _stopped: bool = False

    async def run(self) -> None:
        turns = itertools.count()
        clock = asyncio.get_running_loop()
        for sequence in itertools.count():
            if self._stopped:
                return
            began_s = clock.time()
            await self._acknowledged(sequence, turns)
            self.longest_wait_s = max(self.longest_wait_s, clock.time() - began_s)

    def stop(self) -> None:
        """Stop after the current batch."""
        self._stopped = True

    async def _acknowledged(self, sequence: int, turns: "itertools.count[int]") -> None:
        value = f"{self.name}:{sequence}".encode()
        options = ProduceOptions(
            partition=self.partition, producer=ProducerSequence(self.name, 0, sequence), auto_create=False
        )
        while True:
            name = self._reachable(turns)
            try:
                with self.world.peers.visiting(name):
                    (answer,) = await self.world.brokers[name].produce(ANYBODY, self.topic, draft([value]), options)
            except (Fenced, Unavailable):
                self.retries += 1
                await asyncio.sleep(0)
                continue
            assert answer.base_offset is not None
            self.acknowledged.append((answer.base_offset, value))
            return

    def _reachable(self, turns: "itertools.count[int]") -> str:
        there = [name for name in sorted(self.world.brokers) if f"http://{name}" in self.world.peers.reachable]
        return there[next(turns) % len(there)]


@dataclass
class Load:
    """Several producers for each partition, until `stop`."""

    producers: Sequence[Producer]
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self) -> None:
        self._tasks = [asyncio.create_task(producer.run()) for producer in self.producers]

    async def stop(self) -> None:
        for producer in self.producers:
            producer.stop()
        await asyncio.gather(*self._tasks)

    def sent(self) -> int:
        return sum(len(producer.acknowledged) for producer in self.producers)

    def more(self, count: int) -> Callable[[], bool]:
        """Return a condition: each producer has `count` more records acknowledged than now. Raises any error of a
        producer."""
        before = {id(producer): len(producer.acknowledged) for producer in self.producers}

        def reached() -> bool:
            for task in self._tasks:
                if task.done():
                    task.result()
            return all(len(p.acknowledged) >= before[id(p)] + count for p in self.producers)

        return reached


def load_on(world: Brokers, topic: str, partitions: int, producers_each: int = 2) -> Load:
    return Load(
        [
            Producer(world, f"p{partition}-{index}", topic, partition)
            for partition in range(partitions)
            for index in range(producers_each)
        ]
    )


async def whole_log(broker: Broker, topic: str, partition: int) -> list[tuple[int, bytes]]:
    """Every record of a partition with its offset."""
    records: list[tuple[int, bytes]] = []
    while True:
        fetched = await broker.fetch(ANYBODY, topic, partition, len(records), PAGE)
        records += zip(offsets_of(fetched), values_of(fetched), strict=True)
        if not fetched.batches:
            return records


async def check_log(broker: Broker, load: Load, topic: str, partition: int) -> None:
    """Check that offsets are dense, that each acknowledged record is there once at its acknowledged offset, that each
    producer's records are in order, and that there is no other record (every producer waited for its answers)."""
    records = await whole_log(broker, topic, partition)
    assert [offset for offset, _ in records] == list(range(len(records)))
    producers = [producer for producer in load.producers if producer.partition == partition]
    assert sorted(records) == sorted(record for producer in producers for record in producer.acknowledged)
    for producer in producers:
        own = [value for _, value in records if value.startswith(producer.name.encode() + b":")]
        assert own == [f"{producer.name}:{n}".encode() for n in range(len(own))]
