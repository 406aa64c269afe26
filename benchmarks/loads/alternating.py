"""Send one produce of a record to each of several brokers in turn. Prints a JSON object of times in ms by port.

Every request is for the same partition, so requests differ only in the way they take.
"""

from __future__ import annotations

import argparse
import json
import time

from benchmarks.loads.http_socket import HttpSocket, post
from benchmarks.loads.prebuilt import arrow_body

RECORD_BYTES = 1024
WARM_UP = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ports", type=int, nargs="+", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, required=True)
    options = parser.parse_args()
    content_type, body = arrow_body([b"x" * RECORD_BYTES])
    request = post(f"/v1/topics/{options.topic}/partitions/0/records", content_type, body)
    links = {port: HttpSocket(port) for port in options.ports}
    times: dict[int, list[float]] = {port: [] for port in options.ports}
    for _ in range(options.count + WARM_UP):
        for port, link in links.items():
            start = time.perf_counter()
            answer = link.exchange(request)
            times[port].append((time.perf_counter() - start) * 1e3)
            if answer.status != 200:
                raise SystemExit(f"the broker answered {answer.status}: {answer.body[:500]!r}")
    print(json.dumps({port: found[WARM_UP:] for port, found in times.items()}))


if __name__ == "__main__":
    main()
