"""Measure, in turn, one PUT by the store class and one produce of a record to an idle broker on the same bucket.

The PUT creates an object as large as the WAL entry that the produce makes. Prints a JSON object
with the two lists of milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time

from benchmarks.loads.http_socket import HttpSocket, post
from benchmarks.loads.prebuilt import arrow_body
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.opening import open_store

RECORD_BYTES = 1024
WARM_UP = 5


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument(
        "--gap-ms", type=float, required=True, help="between two produces, longer than the flush interval"
    )
    options = parser.parse_args()
    store = open_store(options.store, runtime=Runtime())
    link = HttpSocket(options.port)
    content_type, body = arrow_body([b"x" * RECORD_BYTES])
    request = post("/v1/topics/t/partitions/0/records", content_type, body)
    link.exchange(request)
    entry = bytes(await largest_entry_bytes(store))
    puts, acks = [], []
    for turn in range(options.count + WARM_UP):
        start = time.perf_counter()
        await store.create(f"raw/{start}-{turn}", entry)
        puts.append((time.perf_counter() - start) * 1e3)
        await asyncio.sleep(options.gap_ms / 2e3)
        start = time.perf_counter()
        answer = link.exchange(request)
        acks.append((time.perf_counter() - start) * 1e3)
        if answer.status != 200:
            raise SystemExit(f"the broker answered {answer.status}: {answer.body[:500]!r}")
        await asyncio.sleep(options.gap_ms / 2e3)
    await store.aclose()
    print(json.dumps({"put_ms": puts[WARM_UP:], "ack_ms": acks[WARM_UP:], "entry_bytes": len(entry)}))


async def largest_entry_bytes(store: ObjectStore) -> int:
    """The size of the WAL entry that holds the record; START entries are smaller."""
    return max(info.size for info in await store.list("wal/"))


if __name__ == "__main__":
    asyncio.run(main())
