"""Counts the requests of a broker to its store under a steady load, in virtual time.

    python -m tests.costs.measured --minutes 10         the counts that docs/cost.md has

One broker has the settings for S3 (a PUT each 250 ms and busy shard) and its store in memory. The events of the demo's
generator arrive steadily, one request at a time for each partition in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from demo.events import CHUNK_EVENTS, EventStream
from tests.anybody import ANYBODY
from tests.coordinator.virtual_time import LoopClock, run_virtually

from tidelog.client.costs import GB_BYTES
from tidelog.services.broker.api.produce import Draft, ProduceOptions
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.runtime.wiring import S3_FLUSH_INTERVAL_MS, broker_parts
from tidelog.services.settings.settings import Settings
from tidelog.storage.records import DRAFT_SCHEMA
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.counting import Kind, RequestCounts, Usage
from tidelog.storage.stores.memory import MemoryObjectStore


@dataclass(frozen=True)
class SteadyLoad:
    """Every `every_s`, `events_per_request` go to `busy_shards` of the shards (None: to all), each time to the next
    partition of a shard. Each of `topics` has `partitions`, spread over the shards."""

    shards: int = 4
    topics: int = 1
    partitions: int = 16
    events_per_request: int = 130
    minutes: float = 10.0
    every_s: float = 0.2
    busy_shards: int | None = None

    @property
    def rounds(self) -> int:
        return round(self.minutes * 60 / self.every_s)

    @property
    def requests_a_round(self) -> int:
        return self.shards if self.busy_shards is None else self.busy_shards


@dataclass(frozen=True)
class Measured:
    """Requests by kind of object, for `seconds` of load and its archiving."""

    load: SteadyLoad
    seconds: float
    raw_bytes: int
    stored_bytes: int
    by_kind: dict[Kind, RequestCounts]

    @property
    def puts_per_gb(self) -> float:
        """Requests at the price of a PUT for a GB of raw records."""
        return (self.all.puts + self.all.lists) / (self.raw_bytes / GB_BYTES)

    @property
    def all(self) -> RequestCounts:
        return sum(self.by_kind.values(), RequestCounts())


async def measure(load: SteadyLoad) -> Measured:
    """Produce for ``load.minutes`` of virtual time, archive the rest, and count."""
    clock = LoopClock()
    settings = Settings(store="memory:", shards=load.shards, flush_interval_ms=S3_FLUSH_INTERVAL_MS)
    broker = LocalBroker(broker_parts(settings, Runtime(clock=clock), MemoryObjectStore()))
    await broker.start()
    try:
        for number in range(load.topics):
            await broker.create_topic(ANYBODY, f"events-{number}", load.partitions, {"retention.ms": -1})
        before = broker.measurements().usage
        began_s = clock.monotonic()
        await _produce(broker, clock, load)
        seconds = clock.monotonic() - began_s
        await broker.archive_now()
        measured = broker.measurements()
        stored_bytes = sum(archive.cold.cold_bytes for archive in measured.archives.values())
        raw_bytes = sum(topic.bytes_in for topic in measured.topics.values())
        return Measured(load, seconds, raw_bytes, stored_bytes, _by_kind(measured.usage - before))
    finally:
        await broker.aclose()


async def _produce(broker: LocalBroker, clock: LoopClock, load: SteadyLoad) -> None:
    turns = _turns(broker, load)
    drafts = itertools.chain.from_iterable(_drafts(load) for _ in itertools.count())
    began_s = clock.monotonic()
    async with asyncio.TaskGroup() as producing:
        for round_ in range(load.rounds):
            await clock.sleep(max(0.0, began_s + round_ * load.every_s - clock.monotonic()))
            for topic, partition in itertools.islice(turns, load.requests_a_round):
                options = ProduceOptions(partition=partition)
                producing.create_task(broker.produce(ANYBODY, topic, next(drafts), options))


def _turns(broker: LocalBroker, load: SteadyLoad) -> Iterator[tuple[str, int]]:
    """The topic and partition of each request: shard after shard, and of each shard its partitions in turn."""
    by_shard: dict[int, list[tuple[str, int]]] = {shard: [] for shard in range(load.shards)}
    for topic in broker.topics(ANYBODY):
        for partition, shard in enumerate(topic.shards):
            by_shard[shard].append((topic.name, partition))
    cycles = [itertools.cycle(places) for places in by_shard.values() if places]
    return (next(cycle) for cycle in itertools.cycle(cycles))


def _drafts(load: SteadyLoad) -> Iterator[Draft]:
    """The records of one request after the other."""
    requests, size = load.rounds * load.requests_a_round, load.events_per_request
    for chunk in EventStream(seed=5).chunks(requests * size + CHUNK_EVENTS):
        for start in range(0, len(chunk) - size + 1, size):
            columns = [column.slice(start, size) for column in (chunk.timestamps, chunk.keys, chunk.values)]
            headers = pa.nulls(size, DRAFT_SCHEMA.field("headers").type)
            records = pa.Table.from_arrays([*columns, headers], schema=DRAFT_SCHEMA)
            yield Draft(records, None, records.nbytes)


def _by_kind(usage: Usage) -> dict[Kind, RequestCounts]:
    return {kind: usage.counts(kind=kind) for kind in Kind if usage.requests(kind=kind)}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.costs.measured")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--shards", type=int, default=SteadyLoad.shards)
    parser.add_argument("--topics", type=int, default=SteadyLoad.topics)
    parser.add_argument("--partitions", type=int, default=SteadyLoad.partitions, help="of each topic")
    parser.add_argument("--events", type=int, default=SteadyLoad.events_per_request)
    chosen = parser.parse_args(arguments)
    load = SteadyLoad(chosen.shards, chosen.topics, chosen.partitions, chosen.events, chosen.minutes)
    found = run_virtually(measure(load))
    rate = found.raw_bytes / found.seconds
    print(f"{found.seconds:.0f} s, {rate / 1e6:.2f} MB/s, stored {found.stored_bytes / found.raw_bytes:.3f} of raw")
    print(f"{found.puts_per_gb:,.0f} requests at the price of a PUT for a GB")
    for kind, counts in found.by_kind.items():
        print(f"{kind.value:10} PUT {counts.puts:6.0f} GET {counts.gets:6.0f} LIST {counts.lists:6.0f}", end=" ")
        print(f"HEAD {counts.heads:6.0f} DELETE {counts.deletes:6.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
