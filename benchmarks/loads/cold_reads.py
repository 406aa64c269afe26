"""Look up old records at random places: raw GETs of the row group by three clients, `SegmentReader`, the broker.

Each round visits every row group of the segments once, always in the same shuffled order, so that no cache of recent
row groups holds it. The offset differs each time. The raw GETs ask for the row group's range, which any reader of
Parquet must fetch for the record; `part` asks for the bytes that `SegmentReader` fetches (ADR 0037). At each place the
order of the ways is random, because the first one finds the bytes in no processor cache. Prints medians in ms as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import boto3
import pyarrow as pa
import pyarrow.ipc

from benchmarks.loads.http_socket import HttpSocket, get
from benchmarks.loads.prebuilt import ARROW
from tidelog.client import Admin
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.partition_view import view_of
from tidelog.storage.manifests.segment_list import FoundSpan
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.object_store import ByteRange, ObjectStore
from tidelog.storage.parquet.parquet_format import Footer, RowGroup
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.segment_reader import READ_BYTES_MAX, SegmentReader
from tidelog.storage.segments.segment_slice import bytes_to_read
from tidelog.storage.segments.span_groups import SpanGroup, span_groups
from tidelog.storage.segments.stored_groups import Wanted
from tidelog.storage.stores.opening import open_store

RECORDS = 100


@dataclass(frozen=True)
class Place:
    """A record to look up, and the row group that holds it."""

    found: FoundSpan
    part: SpanGroup
    footer: Footer
    offset: int = 0

    @property
    def key(self) -> str:
        return self.found.segment.key

    @property
    def group(self) -> RowGroup:
        return self.part.group

    def elsewhere(self, draw: random.Random) -> Place:
        return replace(self, offset=draw.randint(self.part.base_offset, self.part.last_offset))


async def places(store: ObjectStore, topic_id: str, shard: int) -> list[Place]:
    """One for each row group of partition 0."""
    log = ShardLog(store, shard, Runtime())
    view = view_of(await log.with_lists(await log.latest(), (topic_id,)), TopicPartition(topic_id, 0))
    reader, made = SegmentReader(store), []
    for found in view.spans():
        await reader.read(found, found.span.base_offset, records_max=1)
        footer = reader.footers.get(found.segment.key)
        assert footer is not None
        made += [Place(found, part, footer) for part in span_groups(footer, found)]
    return made


class Lookups:
    """The ways to look up a record; each is timed separately."""

    def __init__(self, store: ObjectStore, port: int, topic: str) -> None:
        self._store = store
        self._reader = SegmentReader(store)
        self._link = HttpSocket(port)
        self._boto3 = boto3.client("s3")
        self._bucket, _, self._prefix = store.url.removeprefix("s3://").partition("/")
        self._endpoint = str(self._boto3.meta.endpoint_url)
        self._minio = HttpSocket(int(self._endpoint.rpartition(":")[2]))
        self._signed: dict[str, str] = {}
        self._path = f"/v1/topics/{topic}/partitions/0/records?max_records={RECORDS}&offset="

    async def raw(self, place: Place) -> None:
        start, end = place.group.start, place.group.end
        stored = await self._store.get(place.key, ByteRange(start, end - start))
        assert len(stored.data) == end - start

    async def part(self, place: Place) -> None:
        """A raw GET of the bytes that `reader` fetches."""
        footer = place.footer
        pages = footer.pages_of(place.key, place.group)
        wanted = Wanted(place.found.span.partition, place.offset, READ_BYTES_MAX, RECORDS)
        length = bytes_to_read(footer, pages, place.part, wanted) if pages else place.group.end - place.group.start
        stored = await self._store.get(place.key, ByteRange(place.group.start, length))
        assert len(stored.data) == length

    async def boto3(self, place: Place) -> None:
        start, end = place.group.start, place.group.end
        key = f"{self._prefix}/{place.key}"
        answer = self._boto3.get_object(Bucket=self._bucket, Key=key, Range=f"bytes={start}-{end - 1}")
        assert len(answer["Body"].read()) == end - start

    async def socket(self, place: Place) -> None:
        """The minimum for a client: a socket, and a request that was signed beforehand."""
        start, end = place.group.start, place.group.end
        path = self._signed[place.key]
        request = f"GET {path} HTTP/1.1\r\nHost: {self._endpoint.partition('//')[2]}\r\nRange: bytes={start}-{end - 1}"
        assert len(self._minio.exchange(f"{request}\r\n\r\n".encode()).body) == end - start

    def sign(self, chosen: Sequence[Place]) -> None:
        """Prepare the requests that `socket` sends."""
        for place in chosen:
            params = {"Bucket": self._bucket, "Key": f"{self._prefix}/{place.key}"}
            url = self._boto3.generate_presigned_url("get_object", Params=params, ExpiresIn=3_600)
            self._signed[place.key] = url.removeprefix(self._endpoint)

    async def reader(self, place: Place) -> None:
        records = await self._reader.read(place.found, place.offset, records_max=RECORDS)
        assert records["offset"][0].as_py() == place.offset

    def broker_gets(self) -> int:
        """Number of GETs of segments that the broker has made so far."""
        text = self._link.exchange(get("/metrics", "text/plain")).body.decode()
        counts = re.findall(r'^tidelog_store_requests_total\{kind="segment",verb="get"\} (\S+)$', text, re.MULTILINE)
        return int(float(counts[0])) if counts else 0

    async def broker(self, place: Place) -> None:
        answer = self._link.exchange(get(f"{self._path}{place.offset}", ARROW))
        with pa.ipc.open_stream(answer.body) as batches:
            assert batches.read_next_batch()["offset"][0].as_py() == place.offset


async def measure(options: argparse.Namespace) -> dict[str, object]:
    draw = random.Random(7)
    store = open_store(options.store, runtime=Runtime())
    with Admin(f"http://127.0.0.1:{options.port}", deadline_s=60) as admin:
        topic = admin.topic(options.topic)
    chosen = await places(store, topic.topic_id, topic.partitions[0].shard)
    draw.shuffle(chosen)
    lookups = Lookups(store, options.port, options.topic)
    lookups.sign(chosen)
    ways: dict[str, Callable[[Place], Awaitable[None]]] = {
        "raw": lookups.raw,
        "part": lookups.part,
        "boto3": lookups.boto3,
        "socket": lookups.socket,
        "reader": lookups.reader,
        "broker": lookups.broker,
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    gets_before = 0
    for turn in range(options.rounds + 1):  # the first round warms up: footers, connections
        gets_before = gets_before if turn > 1 else lookups.broker_gets()
        for visited in chosen:
            place = visited.elsewhere(draw)
            for name, look in draw.sample(list(ways.items()), len(ways)):
                start = time.perf_counter()
                await look(place)
                if turn:
                    times[name].append(1e3 * (time.perf_counter() - start))
    measured = {
        "groups": len(chosen),
        "broker_gets": (lookups.broker_gets() - gets_before) / len(times["broker"]),
        "bytes": statistics.mean(place.group.end - place.group.start for place in chosen),
        "p50_ms": {name: statistics.median(taken) for name, taken in times.items()},
        "p99_ms": {name: statistics.quantiles(taken, n=100)[98] for name, taken in times.items()},
    }
    await store.aclose()
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    print(json.dumps(asyncio.run(measure(parser.parse_args()))))


if __name__ == "__main__":
    main()
