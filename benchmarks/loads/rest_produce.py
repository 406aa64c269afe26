"""Produce JSON records through Kafka's REST interface, over several connections, each with one request in flight.

Bodies are built before the clock starts. One thread serves all connections by `select`, so the load takes little of the
cores that it shares with the broker. At the end, the offsets of the partition must have grown by the records that were
acknowledged.
"""

from __future__ import annotations

import argparse
import json
import random
import selectors
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.loads.http_socket import HttpSocket, get, post
from benchmarks.loads.result import Latency, LoadResult, own_cpu_seconds
from benchmarks.payloads import SEED

JSON = "application/vnd.kafka.json.v2+json"
BODIES = 16
RECEIVE_BYTES = 1 << 16


@dataclass
class _Connection:
    """A connection that waits for an answer since `sent_s`."""

    link: socket.socket
    received: bytes = b""
    sent_s: float = 0.0

    def send(self, request: bytes) -> None:
        self.sent_s = time.perf_counter()
        self.link.setblocking(True)
        self.link.sendall(request)
        self.link.setblocking(False)

    def answered(self) -> bool:
        """Receive; return whether the whole answer is there. Ends the program unless it is a 200."""
        self.received += self.link.recv(RECEIVE_BYTES)
        head, found, body = self.received.partition(b"\r\n\r\n")
        if not found or len(body) < _length(head):
            return False
        if head[9:12] != b"200":
            raise SystemExit(f"the broker answered {self.received[:500]!r}")
        self.received = b""
        return True


def end_offset(port: int, topic: str) -> int:
    link = HttpSocket(port)
    answer = link.exchange(get(f"/topics/{topic}/partitions/0/offsets", "application/vnd.kafka.v2+json"))
    link.close()
    offset: int = json.loads(answer.body)["end_offset"]
    return offset


def main() -> None:
    options = _options()
    values = options.payload.read_bytes().splitlines()
    draw = random.Random(SEED)
    requests = []
    for _ in range(BODIES):
        records = [{"value": value.decode()} for value in draw.choices(values, k=options.batch)]
        body = json.dumps({"records": records}, separators=(",", ":")).encode()
        requests.append(post(f"/topics/{options.topic}/partitions/0", JSON, body))
    before = end_offset(options.port, options.topic)
    cpu, start_s = own_cpu_seconds(), time.perf_counter()
    seconds = _run(options, requests)
    elapsed_s = time.perf_counter() - start_s
    cpu = own_cpu_seconds() - cpu
    records = len(seconds) * options.batch
    stored = end_offset(options.port, options.topic) - before
    if stored != records:
        raise SystemExit(f"{records} records were acknowledged, and the log has {stored} more")
    value_bytes = records * len(values[0])
    result = LoadResult(records, value_bytes, elapsed_s, len(seconds), 0, cpu, Latency.of(seconds))
    print(result.to_json())


def _run(options: argparse.Namespace, requests: list[bytes]) -> list[float]:
    """The seconds that each answer took."""
    seconds: list[float] = []
    total = options.records // options.batch
    sent = 0
    with selectors.DefaultSelector() as selector:
        for _ in range(min(options.connections, total)):
            link = socket.create_connection(("127.0.0.1", options.port))
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(link, selectors.EVENT_READ, connection := _Connection(link))
            connection.send(requests[sent % BODIES])
            sent += 1
        while len(seconds) < total:
            for key, _ in selector.select():
                connection = key.data
                if not connection.answered():
                    continue
                seconds.append(time.perf_counter() - connection.sent_s)
                if sent < total:
                    connection.send(requests[sent % BODIES])
                    sent += 1
        for key in list(selector.get_map().values()):
            key.data.link.close()
    return seconds


def _length(head: bytes) -> int:
    _, _, after = head.lower().partition(b"content-length: ")
    return int(after.split(b"\r\n", 1)[0])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--payload", type=Path, required=True)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--records", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
