"""Measure how long a broker takes to lead a shard with a long WAL, and how many requests it needs.

Writes a log with its index, as a leader does, then starts a broker on the bucket. Prints a JSON object: seconds until
it leads, requests until then, and seconds to the first answer to a produce.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from tests.anybody import ANYBODY

from tidelog.services.broker.api.produce import Draft, ProduceOptions
from tidelog.services.broker.shard.index_keeper import IndexKeeper
from tidelog.services.runtime.wiring import open_broker
from tidelog.services.settings.settings import Settings
from tidelog.storage.layout import TopicPartition
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


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True)
    parser.add_argument("--entries", type=int, required=True)
    parser.add_argument("--opens", type=int, default=3)
    options = parser.parse_args()
    settings = Settings(store=options.store, shards=1, archiver_interval_ms=NEVER_MS, archiver_min_bytes=1 << 40)
    runtime = Runtime()
    broker = open_broker(settings, runtime)
    await broker.start()
    topic = await broker.create_topic(ANYBODY, "t", 1, {})
    await broker.aclose()
    store = RetryingObjectStore(open_store(options.store, runtime=runtime), runtime)
    await write_log(store, runtime, topic.partition(0), options.entries)
    await store.aclose()
    opened = [await open_once(settings, runtime) for _ in range(options.opens)]
    print(json.dumps({name: [one[name] for one in opened] for name in opened[0]}))


async def write_log(store: ObjectStore, runtime: Runtime, place: TopicPartition, count: int) -> None:
    """Write `count` entries of one record each."""
    wal = Wal(store, 0, ParquetWalCodec())
    writer = WalWriter(wal, runtime, runtime.entropy.new_id())
    await writer.claim()
    with ThreadPoolExecutor(1) as executor:
        keeper = IndexKeeper(WalIndex(store, 0), executor)
        for offset in range(count):
            header = writer.next_header(spans=(Span(place, offset, 1, 0),))
            body = wal.codec.encode(header, one_record(place, offset))
            await writer.commit(PreparedEntry(header, body))
            keeper.committed(IndexedEntry(header, memoryview(body).nbytes))
        await keeper.settled()


def one_record(place: TopicPartition, offset: int) -> pa.Table:
    columns = {
        "partition": [place.partition],
        "offset": [offset],
        "timestamp": [1_700_000_000_000 + offset],
        "key": [None],
        "value": [b"x" * 100],
        "headers": [None],
    }
    return pa.table({field.name: pa.array(columns[field.name], field.type) for field in WAL_SCHEMA}, WAL_SCHEMA)


async def open_once(settings: Settings, runtime: Runtime) -> dict[str, float]:
    began = time.perf_counter()
    broker = open_broker(settings, runtime)
    await broker.start()
    leads_s = time.perf_counter() - began
    requests = broker.measurements().usage.requests()
    row = {"key": [None], "value": [b"first"], "timestamp": [None], "headers": [None]}
    records = pa.table({field.name: pa.array(row[field.name], field.type) for field in DRAFT_SCHEMA}, DRAFT_SCHEMA)
    await broker.produce(ANYBODY, "t", Draft(records, None, 100), ProduceOptions(partition=0))
    answered_s = time.perf_counter() - began
    await broker.aclose()
    return {"leads_s": leads_s, "requests": requests, "answered_s": answered_s}


if __name__ == "__main__":
    asyncio.run(main())
