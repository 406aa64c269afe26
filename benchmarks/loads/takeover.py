"""Measure how long a broker takes to lead a shard with a long WAL or many partitions, and how many requests it needs.

Writes a log with its index, as a leader does, then starts a broker on the bucket. With several partitions, each entry
has records of `--spans` of them in turn, and each partition has a record in a segment. Prints a JSON object: seconds
until it leads, requests until then, seconds to the first answer to a produce, and seconds until the end of every
partition was answered (in one call), each since the start.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from tests.anybody import ANYBODY

from tidelog.services.broker.api.fetch import Anchor, FetchLimits, FetchPart, Position
from tidelog.services.broker.api.produce import Draft, ProduceOptions
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.broker.shard.index_keeper import IndexKeeper
from tidelog.services.runtime.wiring import open_broker
from tidelog.services.settings.settings import Settings
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.records import DRAFT_SCHEMA, WAL_SCHEMA
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.opening import open_store
from tidelog.storage.stores.retrying import RetryingObjectStore
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_codec import ParquetWalCodec
from tidelog.storage.wal.wal_entry import PreparedEntry, Span
from tidelog.storage.wal.wal_index import IndexedEntry, WalIndex
from tidelog.storage.wal.wal_writer import WalWriter

NEVER_MS = 86_400_000
PRODUCES_AT_ONCE = 1_000


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True)
    parser.add_argument("--entries", type=int, required=True)
    parser.add_argument("--opens", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--spans", type=int, default=1, help="partitions of an entry")
    options = parser.parse_args()
    settings = Settings(store=options.store, shards=1, archiver_interval_ms=NEVER_MS, archiver_min_bytes=1 << 40)
    runtime = Runtime()
    broker = open_broker(settings, runtime)
    await broker.start()
    topic = await broker.create_topic(ANYBODY, "t", options.partitions, {})
    if options.partitions > 1:
        await archive_one_of_each(broker, options.partitions)
    await broker.aclose()
    store = RetryingObjectStore(open_store(options.store, runtime=runtime), runtime)
    places = [topic.partition(number) for number in range(options.partitions)]
    await write_log(store, runtime, places, options.entries, options.spans)
    await store.aclose()
    opened = [await open_once(settings, runtime, options.partitions) for _ in range(options.opens)]
    print(json.dumps({name: [one[name] for one in opened] for name in opened[0]}))


async def archive_one_of_each(broker: LocalBroker, partitions: int) -> None:
    """Give each partition a record in a segment."""
    for first in range(0, partitions, PRODUCES_AT_ONCE):
        some = range(first, min(first + PRODUCES_AT_ONCE, partitions))
        options = (ProduceOptions(partition=number) for number in some)
        await asyncio.gather(*(broker.produce(ANYBODY, "t", one_draft(), each) for each in options))
    await broker.archive_now()


async def write_log(
    store: ObjectStore, runtime: Runtime, places: Sequence[TopicPartition], count: int, spans: int
) -> None:
    """Write `count` entries, each with one record of the next `spans` of `places`."""
    log = ShardLog(store, 0, runtime)
    wal = Wal(store, 0, ParquetWalCodec(), log)
    archived = 1 if len(places) > 1 else 0
    writer = WalWriter(wal, runtime, runtime.entropy.new_id())
    await writer.claim()
    with ThreadPoolExecutor(1) as executor:
        keeper = IndexKeeper(WalIndex(store, 0), executor)
        for number in range(count):
            turns = range(number * spans, (number + 1) * spans)
            found = sorted((turn % len(places), archived + turn // len(places)) for turn in turns)
            held = tuple(Span(places[at], offset, 1, row) for row, (at, offset) in enumerate(found))
            header = writer.next_header(spans=held)
            body = wal.codec.encode(header, records_of([(places[at].partition, offset) for at, offset in found]))
            await writer.commit(PreparedEntry(header, body))
            keeper.committed(IndexedEntry(header, memoryview(body).nbytes))
        await keeper.settled()


def records_of(places: Sequence[tuple[int, int]]) -> pa.Table:
    """A record for each partition and offset."""
    columns: dict[str, list[object]] = {
        "partition": [partition for partition, _ in places],
        "offset": [offset for _, offset in places],
        "timestamp": [1_700_000_000_000 + offset for _, offset in places],
        "key": [None] * len(places),
        "value": [b"x" * 100] * len(places),
        "headers": [None] * len(places),
    }
    return pa.table({field.name: pa.array(columns[field.name], field.type) for field in WAL_SCHEMA}, WAL_SCHEMA)


def one_draft() -> Draft:
    row = {"key": [None], "value": [b"first"], "timestamp": [None], "headers": [None]}
    records = pa.table({field.name: pa.array(row[field.name], field.type) for field in DRAFT_SCHEMA}, DRAFT_SCHEMA)
    return Draft(records, None, 100)


async def open_once(settings: Settings, runtime: Runtime, partitions: int) -> dict[str, float]:
    began = time.perf_counter()
    broker = open_broker(settings, runtime)
    await broker.start()
    leads_s = time.perf_counter() - began
    requests = broker.measurements().usage.requests()
    await broker.produce(ANYBODY, "t", one_draft(), ProduceOptions(partition=0))
    answered_s = time.perf_counter() - began
    parts = [FetchPart("t", number, Position(Anchor.LATEST), 0) for number in range(partitions)]
    answers = await broker.fetch_parts(ANYBODY, parts, FetchLimits(0, 0))
    assert not any(answer.error for answer in answers)
    every_end_s = time.perf_counter() - began
    await broker.aclose()
    return {"leads_s": leads_s, "requests": requests, "answered_s": answered_s, "every_end_s": every_end_s}


if __name__ == "__main__":
    asyncio.run(main())
