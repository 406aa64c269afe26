"""A real broker for Spark's tests: `tidelog serve` in a process, restarted with other settings over the same store, and
records whose every field is known."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pyarrow as pa
from demo.broker_process import BrokerProcess
from pyspark.sql import DataFrame, Row

from tidelog.storage.records import DRAFT_SCHEMA
from tidelog.storage.runtime import SystemClock
from tidelog.wire.topic_log import TopicLogDescription

ARROW_STREAM = "application/vnd.apache.arrow.stream"
START_MS = 1_763_712_000_000
SETTLE_S_MAX = 30.0

ARCHIVES = {"archiver.interval.ms": 50, "archiver.min.bytes": 1}
KEEPS_HOT = {"archiver.interval.ms": 3_600_000, "archiver.min.bytes": 1 << 30}


@dataclass(frozen=True)
class Record:
    """The record produced at `offset`, which every way of reading must return."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None


def record(partition: int, offset: int) -> Record:
    """Covers every kind of field: nulls, empty values, bytes that are not UTF-8, several headers."""
    keys = (None, b"", b"\xff\x00key", b"user-%d" % offset)
    values = (b'{"n": %d}' % offset, None, b"\x80\x81" * (offset % 50), b"")
    headers = (None, (), (("trace", b"\x00\xfe"), ("trace", None)))
    return Record(
        offset=offset,
        timestamp_ms=START_MS + 10 * offset + partition,
        key=keys[offset % len(keys)],
        value=values[offset // 2 % len(values)],
        headers=headers[offset % len(headers)],
    )


def records(partition: int, start: int, end: int) -> list[Record]:
    return [record(partition, offset) for offset in range(start, end)]


@dataclass
class Serving:
    """A broker that accepts requests at `url`."""

    url: str
    http: httpx.Client

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str | int] | None = None) -> None:
        """Its records have times of one day in the past and are kept for ever."""
        body = {"name": name, "partitions": partitions, "configs": {"retention.ms": -1, **(configs or {})}}
        self.http.post("/v1/topics", json=body).raise_for_status()

    def produce(self, topic: str, partition: int, produced: Sequence[Record]) -> None:
        """Make one request; `produced` must get the next offsets."""
        rows = {
            "timestamp": [each.timestamp_ms for each in produced],
            "key": [each.key for each in produced],
            "value": [each.value for each in produced],
            "headers": [_headers(each) for each in produced],
        }
        table = pa.table({name: pa.array(rows[name], DRAFT_SCHEMA.field(name).type) for name in DRAFT_SCHEMA.names})
        answer = self.http.post(
            f"/v1/topics/{topic}/partitions/{partition}/records",
            params={"expected_offset": produced[0].offset},
            content=as_stream(table),
            headers={"Content-Type": ARROW_STREAM},
        )
        answer.raise_for_status()

    def log(self, topic: str) -> TopicLogDescription:
        """The whole log, which is less than a page."""
        answer = self.http.get(f"/v1/topics/{topic}/log")
        answer.raise_for_status()
        return msgspec.json.decode(answer.content, type=TopicLogDescription)

    def wait_until_archived(self, topic: str) -> None:
        """Wait until it has no hot tail."""
        deadline_s = time.monotonic() + SETTLE_S_MAX
        while hot := [ends for ends in self.log(topic).partitions if ends.cold_end < ends.high_watermark]:
            assert time.monotonic() < deadline_s, f"not archived within {SETTLE_S_MAX} s: {hot}"
            time.sleep(0.02)

    def fetch_all(self, topic: str, partition: int) -> list[Record]:
        """Fetch over HTTP, from the log start to the end."""
        found: list[Record] = []
        position, end = "earliest", 1
        while not found or found[-1].offset + 1 < end:
            answer = self.http.get(
                f"/v1/topics/{topic}/partitions/{partition}/records",
                params={"offset": position},
                headers={"Accept": ARROW_STREAM},
            )
            answer.raise_for_status()
            found += [_fetched(row) for row in pa.ipc.open_stream(answer.content).read_all().to_pylist()]
            position, end = answer.headers["tidelog-next-offset"], int(answer.headers["tidelog-high-watermark"])
        return found


@contextmanager
def serving(folder: Path, store: str, settings: Mapping[str, object]) -> Iterator[Serving]:
    """A broker on `store` until the block ends, then stopped gracefully."""
    process = BrokerProcess(folder, {"store": store, **settings}, SystemClock())
    process.start()
    try:
        with httpx.Client(base_url=process.url, timeout=30, trust_env=False) as client:
            yield Serving(process.url, client)
    finally:
        process.stop()


def as_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def rows_of(frame: DataFrame) -> list[Row]:
    """Sorted here, which is cheaper than in Spark for so few rows."""
    return sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset))


def expected_row(topic: str, partition: int, expected: Record, *, headers: bool = False) -> tuple[object, ...]:
    """The row that Spark returns for a record, with its columns in order; its times are local times of this process."""
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=expected.timestamp_ms)
    row = (
        expected.key,
        expected.value,
        topic,
        partition,
        expected.offset,
        moment.astimezone().replace(tzinfo=None),
        0,
    )
    return (*row, _header_rows(expected)) if headers else row


def _headers(each: Record) -> list[dict[str, object]] | None:
    return None if each.headers is None else [{"key": key, "value": value} for key, value in each.headers]


def _header_rows(each: Record) -> list[Row] | None:
    return None if each.headers is None else [Row(key=key, value=value) for key, value in each.headers]


def _fetched(row: Mapping[str, Any]) -> Record:
    headers = row["headers"]
    return Record(
        offset=row["offset"],
        timestamp_ms=round(row["timestamp"].timestamp() * 1000),
        key=row["key"],
        value=row["value"],
        headers=None if headers is None else tuple((each["key"], each["value"]) for each in headers),
    )
