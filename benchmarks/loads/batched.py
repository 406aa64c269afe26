"""Produce with `tidelog.client.Producer.send`, called once per record, like Kafka's load tool calls Kafka's client.

Like that tool, it sends records chosen at random from the lines of the payload. It chooses them beforehand.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

from benchmarks.loads.result import LoadResult, own_cpu_seconds
from benchmarks.payloads import SEED
from tidelog.client import Producer

PICKED = 1 << 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--payload", type=Path, required=True)
    parser.add_argument("--records", type=int, required=True)
    options = parser.parse_args()
    values = options.payload.read_bytes().splitlines()
    picked = random.Random(SEED).choices(values, k=PICKED)
    records, size = options.records, 0
    cpu, start = own_cpu_seconds(), time.perf_counter()
    with Producer(f"http://127.0.0.1:{options.port}", options.topic) as producer:
        send = producer.send
        for turn in range(records):
            value = picked[turn % PICKED]
            size += len(value)
            send(value)
        producer.flush()
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
