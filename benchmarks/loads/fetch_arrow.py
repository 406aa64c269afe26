"""Fetch a partition from a start to an end offset as Arrow streams, over one connection, one request at a time.

Opens each answer as Arrow and sums the bytes of its values, without a Python object per record.
"""

from __future__ import annotations

import argparse
import time

import pyarrow as pa
import pyarrow.ipc

from benchmarks.loads.http_socket import HttpSocket, get
from benchmarks.loads.prebuilt import ARROW
from benchmarks.loads.result import Latency, LoadResult, own_cpu_seconds


def value_bytes_of(batch: pa.RecordBatch) -> int:
    """Bytes of all values of a batch, from the positions of its first and last value."""
    values = batch.column(batch.schema.get_field_index("value"))
    offsets = values.buffers()[1]
    if offsets is None or len(values) == 0:
        return 0
    ends = memoryview(offsets).cast("i")
    return ends[values.offset + len(values)] - ends[values.offset]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partition", type=int, default=0)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--end", type=int, required=True)
    parser.add_argument("--wait-ms", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args()
    link = HttpSocket(options.port)
    path = f"/v1/topics/{options.topic}/partitions/{options.partition}/records?wait_ms={options.wait_ms}&offset="
    offset, size, times = options.start, 0, []
    cpu, begin = own_cpu_seconds(), time.perf_counter()
    while offset < options.end and time.perf_counter() - begin < options.seconds:
        start = time.perf_counter()
        answer = link.exchange(get(f"{path}{offset}", ARROW))
        if answer.status != 200:
            raise SystemExit(f"the broker answered {answer.status}: {answer.body[:500]!r}")
        with pa.ipc.open_stream(answer.body) as batches:
            size += sum(value_bytes_of(batch) for batch in batches)
        offset = int(answer.headers[b"tidelog-next-offset"])
        times.append(time.perf_counter() - start)
    seconds = time.perf_counter() - begin
    result = LoadResult(
        records=offset - options.start,
        value_bytes=size,
        seconds=seconds,
        requests=len(times),
        refused=0,
        cpu_seconds=own_cpu_seconds() - cpu,
        latency=Latency.of(times),
    )
    print(result.to_json())


if __name__ == "__main__":
    main()
