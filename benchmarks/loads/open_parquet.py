"""Read the segments of a topic in S3 with DuckDB, pandas or Spark, through a proxy that counts the bytes they receive.

Runs two filters, one by offset and one by timestamp, each for a thousand records in the middle. The rows must equal
those that the broker returns for the same offsets. Prints the bytes that each filter read and the count of all rows,
as JSON.
"""

from __future__ import annotations

import argparse
import json
import os

import pyarrow as pa

from benchmarks.counting_proxy import CountingProxy
from benchmarks.minio import BUCKET, PASSWORD, USER
from benchmarks.open_readers import ROWS, Archive, Between, DuckDb, OpenReader, Pandas, PlainSpark
from tidelog.client import Admin, Consumer, ConsumerOptions

WANTED_RECORDS = 1_000


def reader_of(name: str) -> OpenReader:
    if name == "spark":
        from tidelog.spark_connector.local_session import local_session

        return PlainSpark(local_session("open-parquet", s3=True))
    return DuckDb() if name == "duckdb" else Pandas()


def from_broker(url: str, topic: str, offset: int) -> pa.Table:
    """`WANTED_RECORDS` of partition 0 from `offset` on, as `ROWS`."""
    options = ConsumerOptions(max_records=WANTED_RECORDS)
    batches: list[pa.Table] = []
    with Consumer(url, topic, partitions=[0], start=offset, options=options) as consumer:
        while (left := WANTED_RECORDS - sum(table.num_rows for table in batches)) > 0:
            batch = consumer.poll(10)
            if batch is None:
                raise SystemExit("the broker gave nothing in 10 s")
            batches.append(batch.records.slice(0, left))
    found = pa.concat_tables(batches)
    times = found["timestamp"].cast(pa.int64())
    places = pa.array([0] * found.num_rows, pa.int32())
    return pa.Table.from_arrays([places, found["offset"], times, found["key"], found["value"]], schema=ROWS)


def measure(options: argparse.Namespace) -> dict[str, object]:
    with Admin(options.broker, deadline_s=60) as admin:
        log = admin.topic_log(options.topic)
    middle = log.partition(0).cold_end // 2
    expected = from_broker(options.broker, options.topic, middle)
    times = expected["timestamp"].to_pylist()
    filters = {
        "offset": Between("offset", middle, middle + WANTED_RECORDS),
        "timestamp": Between("timestamp", times[0], times[0] + 1),  # about a thousand records arrived in it
    }
    reader = reader_of(options.reader)
    answered: dict[str, int] = {}
    for name, between in filters.items():
        with CountingProxy(os.environ["AWS_ENDPOINT_URL"]) as proxy:
            keys = tuple(f"{options.prefix}/{segment.key}" for segment in log.segments)
            archive = Archive(proxy.url, USER, PASSWORD, BUCKET, keys)
            found = reader.read(archive, between)
            answered[name] = proxy.answered_bytes
        _check(found, expected, name)
    return {"read_bytes": answered, "segments": len(log.segments), "bytes": sum(s.size_bytes for s in log.segments)}


def _check(found: pa.Table, expected: pa.Table, name: str) -> None:
    if name == "offset":
        same = found.equals(expected.combine_chunks())
    else:  # that millisecond may have records before and after those requested from the broker
        column = expected["timestamp"].to_numpy()
        shared = expected.filter(pa.array(column == column[0])).combine_chunks()
        first = found["offset"].to_pylist().index(shared["offset"][0].as_py())
        same = found.slice(first, shared.num_rows).combine_chunks().equals(shared)
    if not same:
        raise SystemExit(f"{name}: not the rows that the broker gave")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--prefix", required=True, help="of the store within the bucket")
    parser.add_argument("--reader", choices=("duckdb", "pandas", "spark"), required=True)
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
