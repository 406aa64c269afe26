"""Consume a topic of one partition through Kafka's REST interface, from start to end, by pages of `--max-bytes`.

The records of each page are counted by a byte search. At the end, the count must equal the offsets of the partition.
"""

from __future__ import annotations

import argparse
import json
import time

from benchmarks.loads.http_socket import Answer, HttpSocket, get, post
from benchmarks.loads.rest_produce import end_offset
from benchmarks.loads.result import Latency, LoadResult, own_cpu_seconds

MANAGEMENT = "application/vnd.kafka.v2+json"
MARK = b',"partition":0,"offset":'


def main() -> None:
    options = _options()
    link = HttpSocket(options.port)
    instance = f"/consumers/{options.group}/instances/load"
    config = {"name": "load", "format": options.format, "auto.offset.reset": "earliest"}
    _done(link.exchange(post(f"/consumers/{options.group}", MANAGEMENT, json.dumps(config).encode())))
    topics = json.dumps({"topics": [options.topic]}).encode()
    _done(link.exchange(post(f"{instance}/subscription", MANAGEMENT, topics)))
    page = get(
        f"{instance}/records?timeout=1000&max_bytes={options.max_bytes}",
        f"application/vnd.kafka.{options.format}.v2+json",
    )
    end = end_offset(options.port, options.topic)
    records, seconds = 0, []
    cpu, start_s = own_cpu_seconds(), time.perf_counter()
    while records < end:
        sent_s = time.perf_counter()
        found = _done(link.exchange(page)).body.count(MARK)
        seconds.append(time.perf_counter() - sent_s)
        if not found:
            break
        records += found
    elapsed_s, cpu = time.perf_counter() - start_s, own_cpu_seconds() - cpu
    if records != end:
        raise SystemExit(f"{records} records were answered, and the log has {end}")
    link.exchange(f"DELETE {instance} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    value_bytes = records * options.value_bytes
    print(LoadResult(records, value_bytes, elapsed_s, len(seconds), 0, cpu, Latency.of(seconds)).to_json())


def _done(answer: Answer) -> Answer:
    if answer.status >= 300:
        raise SystemExit(f"the broker answered {answer.status}: {answer.body[:500]!r}")
    return answer


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--format", choices=("json", "binary"), default="json")
    parser.add_argument("--max-bytes", type=int, default=1 << 20)
    parser.add_argument("--value-bytes", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
