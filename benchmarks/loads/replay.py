"""Read a whole topic once, in one of two ways: a `Consumer` over HTTP, or pyarrow over the same Parquet files.

pyarrow streams too (``dataset.to_batches``: bounded memory, its own threads and read-ahead). Both ways sum the bytes of
all values, without a Python object per record.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import FileSystem, LocalFileSystem, S3FileSystem

from benchmarks.loads.fetch_arrow import value_bytes_of
from benchmarks.loads.result import LoadResult, own_cpu_seconds
from tidelog.client import Admin, Consumer, TopicLogRequest


def by_consumer(url: str, topic: str, partitions: int) -> Iterator[pa.RecordBatch]:
    with Consumer(url, topic, partitions=range(partitions), start="start") as consumer:
        for batch in consumer.batches(follow=False):
            yield from batch.records.to_batches()


def by_pyarrow(url: str, topic: str, partitions: int) -> Iterator[pa.RecordBatch]:
    with Admin(url, deadline_s=60) as admin:
        log = admin.topic_log(topic, TopicLogRequest(partitions=tuple(range(partitions))))
    scheme, _, root = log.store.partition("://")
    files = [f"{root}/{segment.key}" for segment in log.segments]
    yield from ds.dataset(files, format="parquet", filesystem=file_system(scheme)).to_batches()


def file_system(scheme: str) -> FileSystem:
    if scheme == "file":
        return LocalFileSystem()
    return S3FileSystem(endpoint_override=os.environ["AWS_ENDPOINT_URL"], region=os.environ["AWS_REGION"])


WAYS = {"consumer": by_consumer, "pyarrow": by_pyarrow}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True, help="the broker's")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--by", choices=WAYS, required=True)
    options = parser.parse_args()
    records = size = requests = 0
    cpu, begin = own_cpu_seconds(), time.perf_counter()
    for batch in WAYS[options.by](options.url, options.topic, options.partitions):
        size += value_bytes_of(batch)
        records += batch.num_rows
        requests += 1
    result = LoadResult(
        records=records,
        value_bytes=size,
        seconds=time.perf_counter() - begin,
        requests=requests,
        refused=0,
        cpu_seconds=own_cpu_seconds() - cpu,
    )
    print(result.to_json())


if __name__ == "__main__":
    main()
