"""Produce bodies that were built before the clock starts, over several connections, each with one request in flight.

`--records` and `--seconds` limit the load. After a 503 (full buffer) the program waits as `Retry-After` says and counts
it; any other answer except 200 ends the program. With several ports, the connections are divided over them. With
`--leaders`, each request goes directly to the port of its partition's leader. With `--topics` above 1, the load goes to
all partitions of that many topics: ``t-0``, ``t-1`` and so on.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc

from benchmarks import s2_lite
from benchmarks.loads.http_socket import HttpSocket, post
from benchmarks.loads.result import Latency, LoadResult, own_cpu_seconds
from benchmarks.payloads import SEED

ARROW = "application/vnd.apache.arrow.stream"
BODIES = 16


def arrow_body(values: list[bytes]) -> tuple[str, bytes]:
    batch = pa.record_batch({"value": pa.array(values, pa.binary())})
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return ARROW, out.getvalue().to_pybytes()


def json_body(values: list[bytes]) -> tuple[str, bytes]:
    records = [{"value": value.decode()} for value in values]
    return "application/json", json.dumps({"records": records}, separators=(",", ":")).encode()


def base64_body(values: list[bytes]) -> tuple[str, bytes]:
    records = [{"value": {"base64": base64.b64encode(value).decode()}} for value in values]
    return "application/json", json.dumps({"records": records}, separators=(",", ":")).encode()


def s2_body(values: list[bytes]) -> tuple[str, bytes]:
    return "application/protobuf", s2_lite.append_input(values)


FORMATS = {"arrow": arrow_body, "json": json_body, "base64": base64_body, "s2": s2_body}


class Load:
    """State that the threads of the connections share."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        values = options.payload.read_bytes().splitlines()
        draw = random.Random(SEED)
        self.bodies = []
        for _ in range(BODIES):
            chosen = draw.choices(values, k=options.batch)
            self.bodies.append((*FORMATS[options.format](chosen), sum(map(len, chosen))))
        self._leaders: list[int] = json.loads(options.leaders.read_text()) if options.leaders else []
        self._lock = threading.Lock()
        self._requests_left = -(-options.records // options.batch)
        self._turn = 0
        self.sent_bytes = 0
        self.refused = 0
        self.latencies: list[float] = []

    def connection(self, number: int) -> None:
        ports = self._options.port
        links: dict[int, HttpSocket] = {}
        deadline = time.monotonic() + self._options.seconds
        if self._options.rate:
            time.sleep(number / self._options.rate)  # otherwise all connections would keep sending at the same moments
        while time.monotonic() < deadline and (turn := self._take()) is not None:
            content_type, body, value_bytes = self.bodies[turn % BODIES]
            place = turn * 7919 % (self._options.partitions * self._options.topics)  # spread, the same in every run
            topic, partition = divmod(place, self._options.partitions)
            request = self._request(topic, partition, content_type, body)
            port = self._leaders[partition] if self._leaders else ports[number % len(ports)]
            link = links.get(port) or links.setdefault(port, HttpSocket(port))
            start = time.perf_counter()
            self._send(link, request)
            with self._lock:
                self.latencies.append(time.perf_counter() - start)
                self.sent_bytes += value_bytes
            self._pace(start)
        for link in links.values():
            link.close()

    def _take(self) -> int | None:
        with self._lock:
            if self._requests_left == 0:
                return None
            self._requests_left -= 1
            self._turn += 1
            return self._turn

    def _request(self, number: int, partition: int, content_type: str, body: bytes) -> bytes:
        if self._options.format == "s2":
            return s2_lite.request("POST", f"/v1/streams/{s2_lite.STREAM}/records", body)
        topic = self._options.topic if self._options.topics == 1 else f"{self._options.topic}-{number}"
        return post(f"/v1/topics/{topic}/partitions/{partition}/records", content_type, body)

    def _send(self, link: HttpSocket, request: bytes) -> None:
        while (answer := link.exchange(request)).status == 503:
            with self._lock:
                self.refused += 1
            time.sleep(min(1.0, float(answer.headers.get(b"retry-after", b"1"))))
        if answer.status != 200:
            raise SystemExit(f"the broker answered {answer.status}: {answer.body[:500]!r}")

    def _pace(self, start: float) -> None:
        if self._options.rate:
            gap = self._options.connections / self._options.rate
            time.sleep(max(0.0, gap - (time.perf_counter() - start)))


def load_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True, nargs="+")
    parser.add_argument("--leaders", type=Path, help="a JSON list of ports, by partition")
    parser.add_argument("--topic", default="t")
    parser.add_argument("--topics", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=1, help="of each topic")
    parser.add_argument("--format", choices=FORMATS, default="arrow")
    parser.add_argument("--payload", type=Path, required=True)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--batch", type=int, default=2000, help="records a request")
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--rate", type=float, default=0.0, help="requests a second; 0: as fast as they are answered")
    return parser.parse_args(arguments)


def main() -> None:
    options = load_options()
    load = Load(options)
    threads = [threading.Thread(target=load.connection, args=(n,)) for n in range(options.connections)]
    cpu, start = own_cpu_seconds(), time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    requests = len(load.latencies)
    result = LoadResult(
        records=requests * options.batch,
        value_bytes=load.sent_bytes,
        seconds=seconds,
        requests=requests,
        refused=load.refused,
        cpu_seconds=own_cpu_seconds() - cpu,
        latency=Latency.of(load.latencies),
    )
    print(result.to_json())


if __name__ == "__main__":
    main()
