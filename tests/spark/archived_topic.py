"""A topic of two partitions that is completely archived in MinIO, with row groups a sixteenth of the usual size. The
share of the bytes that a filter reads depends on the number of row groups, not on their size."""

from __future__ import annotations

import random
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
from tidelog.storage.parquet import parquet_flavor
from tidelog.storage.stores.s3 import S3ObjectStore

ROW_GROUP_BYTES = 512 * 1024
BATCHES, BATCH, VALUE_BYTES = 16, 4_000, 500
RECORDS = BATCHES * BATCH
START_MS = 4_000_000_000_000
ALL = FetchLimits(1_000_000, 1 << 30)


def time_of(offset: int) -> int:
    """Ten records per millisecond; some arrive late."""
    return START_MS + offset // 10 - offset % 3


OFFSETS = Between("offset", 30_000, 30_050)
TIMES = Between("timestamp", time_of(20_000), time_of(20_400))


@dataclass(frozen=True)
class ArchivedTopic:
    """`rows` as the broker returns them; `size_bytes` of all segments."""

    archive: Archive
    rows: pa.Table
    size_bytes: int

    def wanted(self, between: Between) -> pa.Table:
        column = self.rows[between.column].to_numpy()
        return self.rows.filter(pa.array((column >= between.low) & (column < between.high)))


async def archived_topic(bucket: S3Bucket, patch: pytest.MonkeyPatch) -> ArchivedTopic:
    """Produce and archive through a broker in this process."""
    patch.setattr(parquet_flavor, "ROW_GROUP_RAW_BYTES", ROW_GROUP_BYTES)
    noise = random.Random(11)
    store = S3ObjectStore(bucket.name, settings=bucket.endpoint.settings())
    async with running_broker(store, archiver_batch_bytes=1 << 30, archiver_upkeep=False) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {})
        for start in range(0, RECORDS, BATCH):
            offsets = range(start, start + BATCH)
            values = [noise.randbytes(VALUE_BYTES) if n % 9 else None for n in offsets]
            keys = [b"k%d" % (n % 1_000) if n % 4 else None for n in offsets]
            made = draft(values, keys=keys, timestamps=[time_of(n) for n in offsets])
            await broker.produce(ANYBODY, "t", made, ProduceOptions(partition=0))
        await broker.produce(ANYBODY, "t", draft([b"other"] * 100, timestamps=[1] * 100), ProduceOptions(partition=1))
        await broker.archive_now()
        log = await broker.topic_log(ANYBODY, "t")
        rows = pa.concat_tables([await read_partition(broker, partition) for partition in range(2)])
    endpoint, keys = bucket.endpoint, tuple(segment.key for segment in log.segments)
    archive = Archive(endpoint.url, endpoint.access_key_id, endpoint.secret_access_key, bucket.name, keys)
    return ArchivedTopic(archive, rows, sum(segment.size_bytes for segment in log.segments))


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
