"""A topic of 20 partitions that is completely archived and merged in MinIO, with row groups a sixty-fourth of the usual
size. The share of the bytes that a filter reads depends on the number of row groups, not on their size."""

from __future__ import annotations

import asyncio
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
from tidelog.storage.stores.s3 import S3ObjectStore
from tidelog.storage.upkeep import run_writer
from tidelog.storage.upkeep.topic_runs import FINAL_LEVEL
from tidelog.wire.topic_log import TopicLogDescription

ROW_GROUP_BYTES = 128 * 1024
PARTITIONS, RECORDS, VALUE_BYTES = 20, 3_200, 500
START_MS = 4_000_000_000_000
ALL = FetchLimits(1_000_000, 1 << 30)


def time_of(offset: int) -> int:
    """One record per millisecond; some arrive late."""
    return START_MS + offset - offset % 3


ONE = 7
WAIT_S = 30.0
OFFSETS = Between("offset", 1_500, 1_532, ONE)
TIMES = Between("timestamp", time_of(1_000), time_of(1_032), ONE)
"""One partition and a hundredth of its records."""


@dataclass(frozen=True)
class ArchivedTopic:
    """`rows` as the broker returns them; `size_bytes` of all segments."""

    archive: Archive
    rows: pa.Table
    size_bytes: int

    def wanted(self, between: Between) -> pa.Table:
        column = self.rows[between.column].to_numpy()
        within = (column >= between.low) & (column < between.high)
        return self.rows.filter(pa.array(within & (self.rows["partition"].to_numpy() == between.partition)))


async def archived_topic(bucket: S3Bucket, patch: pytest.MonkeyPatch) -> ArchivedTopic:
    """Produce, archive and merge through a broker in this process."""
    patch.setattr(run_writer, "ROW_GROUP_RAW_BYTES", ROW_GROUP_BYTES)
    patch.setattr(run_writer, "OWN_ROW_GROUP_BYTES", ROW_GROUP_BYTES // 8)
    patch.setattr(run_writer, "HELD_BYTES_MAX", 2 * ROW_GROUP_BYTES)
    noise = random.Random(11)
    store = S3ObjectStore(bucket.name, settings=bucket.endpoint.settings())
    async with running_broker(store, shards=1, archiver_batch_bytes=1 << 30) as broker:
        await broker.create_topic(ANYBODY, "t", PARTITIONS, {"segment.ms": 1})
        for partition in range(PARTITIONS):
            values = [noise.randbytes(VALUE_BYTES) if n % 9 else None for n in range(RECORDS)]
            keys = [b"k%d" % (n % 1_000) if n % 4 else None for n in range(RECORDS)]
            made = draft(values, keys=keys, timestamps=[time_of(n) for n in range(RECORDS)])
            await broker.produce(ANYBODY, "t", made, ProduceOptions(partition=partition))
            if partition % 10 == 9:  # two runs, because one alone is not merged
                await broker.archive_now()
        log = await merged_log(broker)
        rows = pa.concat_tables([await read_partition(broker, partition) for partition in range(PARTITIONS)])
    endpoint, names = bucket.endpoint, tuple(segment.key for segment in log.segments)
    archive = Archive(endpoint.url, endpoint.access_key_id, endpoint.secret_access_key, bucket.name, names)
    return ArchivedTopic(archive, rows, sum(segment.size_bytes for segment in log.segments))


async def merged_log(broker: LocalBroker) -> TopicLogDescription:
    """The topic's log once the broker's own upkeep has merged all of it."""
    async with asyncio.timeout(WAIT_S):
        while True:
            log = await broker.topic_log(ANYBODY, "t")
            if {segment.level for segment in log.segments} == {FINAL_LEVEL}:
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
