"""A topic of 1,000 partitions in MinIO, as it is archived or merged, with row groups a thirty-second of the usual size.
What share of the bytes a filter reads depends on the number of row groups more than on their size."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pyarrow as pa
import pytest
from benchmarks.open_readers import ROWS, Archive, Between
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker
from tests.broker.drafts import draft
from tests.components.s3_endpoint import S3Bucket

from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.archive import row_encoding
from tidelog.storage.stores.s3 import S3ObjectStore
from tidelog.storage.upkeep import run_writer
from tidelog.storage.upkeep.topic_runs import FINAL_LEVEL
from tidelog.wire.topic_log import TopicLogDescription

ROW_GROUP_BYTES = 256 * 1024
PARTITIONS, RECORDS, VALUE_BYTES = 1_000, 100, 200
PASSES = 2
"""One alone is not merged."""
START_MS = 4_000_000_000_000
ALL = FetchLimits(1_000_000, 1 << 30)
WAIT_S = 30.0


def time_of(offset: int) -> int:
    """One record per millisecond; some arrive late."""
    return START_MS + offset - offset % 3


ONE = 7
OFFSETS = Between("offset", 70, 71, ONE)
TIMES = Between("timestamp", time_of(40), time_of(40) + 1, ONE)
"""One partition and a hundredth of its records, or three of its records."""


@dataclass(frozen=True)
class ArchivedTopic:
    """`rows` as they were produced; `of_broker`: those of partition `ONE` as the broker returns them; `size_bytes` of
    all segments."""

    archive: Archive
    rows: pa.Table
    of_broker: pa.Table
    size_bytes: int

    def wanted(self, between: Between) -> pa.Table:
        column = self.rows[between.column].to_numpy()
        within = (column >= between.low) & (column < between.high)
        return self.rows.filter(pa.array(within & (self.rows["partition"].to_numpy() == between.partition)))


async def archived_topic(bucket: S3Bucket, level: int, patch: pytest.MonkeyPatch) -> ArchivedTopic:
    """Produce and archive through a broker in this process, and wait until it has merged the segments to `level`."""
    patch.setattr(row_encoding, "ROW_GROUP_RAW_BYTES", ROW_GROUP_BYTES)
    patch.setattr(run_writer, "ROW_GROUP_RAW_BYTES", ROW_GROUP_BYTES)
    patch.setattr(run_writer, "OWN_ROW_GROUP_BYTES", ROW_GROUP_BYTES // 8)
    patch.setattr(run_writer, "HELD_BYTES_MAX", 2 * ROW_GROUP_BYTES)
    noise = random.Random(11)
    parts = [made_rows(n * RECORDS // PASSES, (n + 1) * RECORDS // PASSES, noise) for n in range(PASSES)]
    async with broker_of(bucket, level) as broker:
        for part in parts:
            columns = {name: part[name].to_pylist() for name in ROWS.names}
            made = draft(
                columns["value"],
                keys=columns["key"],
                timestamps=columns["timestamp"],
                partitions=columns["partition"],
            )
            await broker.produce(ANYBODY, "t", made, ProduceOptions())
            await broker.archive_now()
        log = await log_at(broker, level)
        of_broker = await read_partition(broker, ONE)
    endpoint, names = bucket.endpoint, tuple(segment.key for segment in log.segments)
    archive = Archive(endpoint.url, endpoint.access_key_id, endpoint.secret_access_key, bucket.name, names)
    rows = pa.concat_tables(parts).sort_by([("partition", "ascending"), ("offset", "ascending")])
    return ArchivedTopic(archive, rows, of_broker, sum(segment.size_bytes for segment in log.segments))


def made_rows(first: int, end: int, noise: random.Random) -> pa.Table:
    """The records from offset `first` to `end` of every partition, as `ROWS`."""
    places = [(partition, offset) for partition in range(PARTITIONS) for offset in range(first, end)]
    columns = {
        "partition": [partition for partition, _ in places],
        "offset": [offset for _, offset in places],
        "timestamp": [time_of(offset) for _, offset in places],
        "key": [b"k%d" % (offset % 10) if offset % 4 else None for _, offset in places],
        "value": [noise.randbytes(VALUE_BYTES) if offset % 9 else None for _, offset in places],
    }
    return pa.table(columns, schema=ROWS)


@asynccontextmanager
async def broker_of(bucket: S3Bucket, level: int) -> AsyncIterator[LocalBroker]:
    store = S3ObjectStore(bucket.name, settings=bucket.endpoint.settings())
    merges = level == FINAL_LEVEL
    async with running_broker(store, shards=1, archiver_batch_bytes=1 << 30, archiver_upkeep=merges) as broker:
        await broker.create_topic(ANYBODY, "t", PARTITIONS, {"segment.ms": 1})
        yield broker


async def log_at(broker: LocalBroker, level: int) -> TopicLogDescription:
    """The topic's log once all of its segments have `level`, by the broker's own upkeep."""
    async with asyncio.timeout(WAIT_S):
        while True:
            log = await broker.topic_log(ANYBODY, "t")
            if {segment.level for segment in log.segments} == {level}:
                return log
            await asyncio.sleep(0.05)


async def read_partition(broker: LocalBroker, partition: int) -> pa.Table:
    """Read all of it, page by page, as `ROWS`."""
    batches, offset = [], 0
    while (fetched := await broker.fetch(ANYBODY, "t", partition, offset, ALL)).next_offset > offset:
        batches += fetched.batches
        offset = fetched.next_offset
    table = pa.Table.from_batches(batches)
    times = table["timestamp"].cast(pa.int64())
    places = pa.array([partition] * table.num_rows, pa.int32())
    return pa.Table.from_arrays([places, table["offset"], times, table["key"], table["value"]], schema=ROWS)
