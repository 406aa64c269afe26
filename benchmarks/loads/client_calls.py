"""One load with the shipped Python client: produce or consume, as Arrow tables or record by record.

`--compression none` shows what compression costs and saves.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from benchmarks.loads.fetch_arrow import value_bytes_of
from benchmarks.loads.result import LoadResult, own_cpu_seconds
from benchmarks.payloads import SEED
from tidelog.client import Consumer, ConsumerOptions, Producer, ProducerOptions

TABLE_ROWS = 4_096
PICKED = 1 << 16


Load: TypeAlias = Callable[[], tuple[int, int]]
"""What is measured. Returns how many records it sent or read, and the bytes of their values."""


def produce_records(options: argparse.Namespace) -> Load:
    """As Kafka's load tool, it sends records chosen at random from the lines of the payload. It chooses them first."""
    picked = random.Random(SEED).choices(options.payload.read_bytes().splitlines(), k=PICKED)

    def load() -> tuple[int, int]:
        with Producer(options.url, options.topic, ProducerOptions(compression=options.compression)) as producer:
            send = producer.send
            for turn in range(options.records):
                send(picked[turn % PICKED])
            producer.flush()
        whole, rest = divmod(options.records, PICKED)
        return options.records, whole * sum(map(len, picked)) + sum(map(len, picked[:rest]))

    return load


def produce_tables(options: argparse.Namespace) -> Load:
    lines = options.payload.read_bytes().splitlines()[:TABLE_ROWS]
    table = pa.table({"value": pa.array(lines, pa.binary())})
    turns = options.records // TABLE_ROWS

    def load() -> tuple[int, int]:
        with Producer(options.url, options.topic, ProducerOptions(compression=options.compression)) as producer:
            for _ in range(turns):
                producer.send_batch(table)
            producer.flush()
        return turns * TABLE_ROWS, turns * sum(map(len, lines))

    return load


def consume_tables(options: argparse.Namespace) -> Load:
    def load() -> tuple[int, int]:
        records = size = 0
        with _consumer(options) as consumer:
            for batch in consumer.batches(follow=False):
                records += batch.records.num_rows
                size += sum(map(value_bytes_of, batch.records.to_batches()))
        return records, size

    return load


def consume_records(options: argparse.Namespace) -> Load:
    def load() -> tuple[int, int]:
        records = size = 0
        with _consumer(options) as consumer:
            for record in consumer.records(follow=False):
                records += 1
                size += len(record.value or b"")
        return records, size

    return load


def _consumer(options: argparse.Namespace) -> Consumer:
    how = ConsumerOptions(compression=options.compression)
    return Consumer(options.url, options.topic, start="start", options=how)


LOADS: dict[str, Callable[[argparse.Namespace], Load]] = {
    "produce-records": produce_records,
    "produce-tables": produce_tables,
    "consume-tables": consume_tables,
    "consume-records": consume_records,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("load", choices=LOADS)
    parser.add_argument("--url", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--payload", type=Path)
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--compression", default="zstd")
    options = parser.parse_args()
    load = LOADS[options.load](options)
    cpu, start = own_cpu_seconds(), time.perf_counter()
    records, size = load()
    seconds = time.perf_counter() - start
    result = LoadResult(
        records=records,
        value_bytes=size,
        seconds=seconds,
        requests=0,
        refused=0,
        cpu_seconds=own_cpu_seconds() - cpu,
    )
    print(result.to_json())


if __name__ == "__main__":
    main()
