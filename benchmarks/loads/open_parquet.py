"""Read the segments of a topic in S3 with DuckDB, pandas or Spark, through a proxy that counts the bytes they receive.

Filters 1 % of the offsets of one partition, in their middle. The rows must equal those that the broker returns for the
same offsets. Prints the bytes that each reader received, and those of all segments and of their footers, as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace

import pyarrow as pa
from pyarrow.fs import S3FileSystem

from benchmarks.counting_proxy import CountingProxy
from benchmarks.minio import BUCKET, PASSWORD, REGION, USER
from benchmarks.open_readers import ROWS, Archive, Between, DuckDb, OpenReader, Pandas, PlainSpark
from tidelog.client import Admin, Consumer, ConsumerOptions

PARTITION = 7
OFFSETS_SHARE = 100
"""One in so many offsets of the partition."""
TAIL_BYTES = 8
HADOOP_DEFAULTS = {"fs.s3a.input.stream.type": "analytics"}
"""What `s3_options` changes of them."""


def reader_of(name: str) -> OpenReader:
    if name.startswith("spark"):
        from tidelog.spark_connector.sessions.local_session import local_session

        return PlainSpark(local_session("open-parquet", s3=True), HADOOP_DEFAULTS if name == "spark-defaults" else {})
    return DuckDb() if name == "duckdb" else Pandas()


def from_broker(url: str, topic: str, offset: int, count: int) -> pa.Table:
    """`count` records of the partition from `offset` on, as `ROWS`."""
    options = ConsumerOptions(max_records=count)
    batches: list[pa.Table] = []
    with Consumer(url, topic, partitions=[PARTITION], start=offset, options=options) as consumer:
        while (left := count - sum(table.num_rows for table in batches)) > 0:
            batch = consumer.poll(10)
            if batch is None:
                raise SystemExit("the broker gave nothing in 10 s")
            batches.append(batch.records.slice(0, left))
    found = pa.concat_tables(batches)
    times = found["timestamp"].cast(pa.int64())
    places = pa.array([PARTITION] * found.num_rows, pa.int32())
    return pa.Table.from_arrays([places, found["offset"], times, found["key"], found["value"]], schema=ROWS)


def measure(options: argparse.Namespace) -> dict[str, object]:
    with Admin(options.broker, deadline_s=60) as admin:
        log = admin.topic_log(options.topic)
    offsets = log.partition(PARTITION).cold_end
    low, count = offsets // 2, max(1, offsets // OFFSETS_SHARE)
    expected = from_broker(options.broker, options.topic, low, count).combine_chunks()
    keys = tuple(f"{options.prefix}/{segment.key}" for segment in log.segments)
    archive = Archive(os.environ["AWS_ENDPOINT_URL"], USER, PASSWORD, BUCKET, keys)
    wanted = Between("offset", low, low + count, PARTITION)
    return {
        "read_bytes": {name: read_bytes(name, archive, wanted, expected) for name in options.readers},
        "records": count,
        "segments": len(keys),
        "bytes": sum(segment.size_bytes for segment in log.segments),
        "footer_bytes": sum(footer_bytes(archive, path) for path in archive.urls("")),
    }


def read_bytes(name: str, archive: Archive, wanted: Between, expected: pa.Table) -> int:
    """What a reader receives to get the rows."""
    reader = reader_of(name)
    with CountingProxy(archive.endpoint) as proxy:
        found = reader.read(replace(archive, endpoint=proxy.url), wanted)
        received = proxy.answered_bytes
    if not found.equals(expected):
        raise SystemExit(f"{name}: not the rows that the broker gave")
    return received


def footer_bytes(archive: Archive, path: str) -> int:
    files = S3FileSystem(endpoint_override=archive.endpoint, region=REGION, access_key=USER, secret_key=PASSWORD)
    with files.open_input_file(path) as file:
        file.seek(file.size() - TAIL_BYTES)
        return int.from_bytes(file.read(4), "little")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--prefix", required=True, help="of the store within the bucket")
    parser.add_argument("--readers", choices=("duckdb", "pandas", "spark", "spark-defaults"), nargs="+", required=True)
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
