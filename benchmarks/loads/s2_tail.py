"""Follow an s2 stream from its start over one connection, until `--end` records are read."""

from __future__ import annotations

import argparse
import time

from benchmarks import s2_lite
from benchmarks.loads.http_socket import HttpSocket
from benchmarks.loads.result import LoadResult, own_cpu_seconds

READ_RECORDS = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--end", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args()
    link = HttpSocket(options.port)
    sequence, size, requests = 0, 0, 0
    cpu, begin = own_cpu_seconds(), time.perf_counter()
    while sequence < options.end and time.perf_counter() - begin < options.seconds:
        path = f"/v1/streams/{s2_lite.STREAM}/records?seq_num={sequence}&count={READ_RECORDS}&wait=1"
        answer = link.exchange(s2_lite.request("GET", path))
        if answer.status not in (200, 416):
            raise SystemExit(f"s2 answered {answer.status}: {answer.body[:500]!r}")
        sequence += s2_lite.records_in(answer.body) if answer.status == 200 else 0
        size += len(answer.body) if answer.status == 200 else 0
        requests += 1
    result = LoadResult(
        records=sequence,
        value_bytes=size,
        seconds=time.perf_counter() - begin,
        requests=requests,
        refused=0,
        cpu_seconds=own_cpu_seconds() - cpu,
    )
    print(result.to_json())


if __name__ == "__main__":
    main()
