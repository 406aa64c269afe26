"""Read a topic's records in order, partition by partition.

    with Consumer("http://127.0.0.1:8080", "web", start="start") as consumer:
        for record in consumer.records():          # Python objects, without an end
            print(record.offset, record.value)

    with Consumer(broker, "web", start="-1000") as consumer:
        while batch := consumer.poll(timeout_s=1):  # Arrow tables: no Python per record
            print(batch.partition, batch.records.num_rows)

While the program works on a batch, the next batch of its partition is fetched; at most one waits per partition. A
consumer keeps its positions itself. A program can store `positions` and continue from them with `seek`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from tidelog.client.admin import Admin, checked_position, partition_path
from tidelog.client.arrow_stream import Compression, accepting, checked_compression
from tidelog.client.broker_access import Broker
from tidelog.client.connection import (
    DEFAULT_BROKER,
    FIRST_CONNECT_TIMEOUT_S,
    Answer,
    Connection,
    Request,
)
from tidelog.storage.errors import Corrupt, Invalid
from tidelog.storage.runtime import Runtime

FETCHES_AT_ONCE_MAX = 8
LONG_POLL_MS = 1_000
SHARED_POLL_MS = 100
"""How long a fetch may wait at the broker when there are more partitions than fetches at once."""


@dataclass(frozen=True)
class ConsumerOptions:
    """`max_records` and `max_bytes` bound a fetch; None: the broker's own bounds. `deadline_s` bounds a fetch with its
    retries, `connect_timeout_s` the search for a first broker, `close_timeout_s` the duration of `close`.
    `compression`: of fetched records on the wire."""

    max_records: int | None = None
    max_bytes: int | None = None
    deadline_s: float = 30.0
    connect_timeout_s: float = FIRST_CONNECT_TIMEOUT_S
    close_timeout_s: float = 2.0
    compression: Compression = "zstd"


@dataclass(frozen=True)
class Batch:
    """Records of one partition: a table with `records.RECORD_SCHEMA`. Reading continues at `next_offset`."""

    partition: int
    records: pa.Table
    next_offset: int
    high_watermark: int
    log_start_offset: int


@dataclass(frozen=True)
class Record:
    """One record. `timestamp_ms` counts from 1970 UTC; `headers` keep their order."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class Consumer:
    """Reads `partitions` (None: all) of one topic from the position `start` (see `checked_position`). It is not safe
    for threads."""

    def __init__(
        self,
        broker: Broker = DEFAULT_BROKER,
        topic: str = "",
        *,
        partitions: Sequence[int] | None = None,
        start: str | int = "earliest",
        options: ConsumerOptions | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        self.topic = topic
        position = checked_position(start)
        self._options = options or ConsumerOptions()
        checked_compression(self._options.compression)
        self._clock = (runtime or Runtime()).clock
        self._admin = Admin(
            broker,
            deadline_s=min(10.0, self._options.deadline_s),
            connect_timeout_s=self._options.connect_timeout_s,
            runtime=runtime,
        )
        try:
            known = [partition.partition for partition in self._admin.topic(topic).partitions]
            assigned = known if partitions is None else list(dict.fromkeys(partitions))
            _check_known(topic, assigned, known)
            self._positions = {partition: self._admin.offset(topic, partition, position) for partition in assigned}
        except BaseException:
            self._admin.close()
            raise
        self._high_watermarks = dict.fromkeys(assigned, -1)
        self._fetching: dict[int, Future[Batch]] = {}
        fetches = max(1, min(len(assigned), FETCHES_AT_ONCE_MAX))
        self._wait_ms = LONG_POLL_MS if len(assigned) <= FETCHES_AT_ONCE_MAX else SHARED_POLL_MS
        self._connection = Connection(broker, deadline_s=self._options.deadline_s, runtime=runtime, pool=fetches)
        self._fetchers = ThreadPoolExecutor(fetches, thread_name_prefix="tidelog-consumer")

    @property
    def positions(self) -> Mapping[int, int]:
        """The next offset of each assigned partition, after the last batch that `poll` returned."""
        return dict(self._positions)

    @property
    def high_watermarks(self) -> Mapping[int, int]:
        """The end of each assigned partition in its last answer; -1 before the first fetch."""
        return dict(self._high_watermarks)

    def seek(self, partition: int, offset: int) -> None:
        """Continue at `offset`. Raises `Invalid` for a partition that is not assigned."""
        if partition not in self._positions:
            raise Invalid(f"partition {partition} is not assigned to this consumer", field="partition")
        self._positions[partition] = offset
        self._fetching.pop(partition, None)

    def poll(self, timeout_s: float = 1.0) -> Batch | None:
        """The next batch of any partition, or None if none arrived within `timeout_s`. Raises `OutOfRange`, with the
        range of the log, if the log no longer holds the position: `seek` then, or give up."""
        give_up_at = self._clock.monotonic() + timeout_s
        while True:
            self._fetch_ahead()
            left_s = max(0.0, give_up_at - self._clock.monotonic())
            done, _ = wait(self._fetching.values(), left_s, FIRST_COMPLETED)
            for partition in [partition for partition, fetch in self._fetching.items() if fetch in done]:
                batch = self._fetching.pop(partition).result()
                self._high_watermarks[partition] = batch.high_watermark
                self._positions[partition] = batch.next_offset
                if batch.records.num_rows:
                    self._fetch_ahead()
                    return batch
            if self._clock.monotonic() >= give_up_at:
                return None

    def batches(self, *, follow: bool = True) -> Iterator[Batch]:
        """Batch after batch, without an end. With `follow` off, up to the present ends of the partitions."""
        ends = None if follow else self.end_offsets()
        while ends is None or any(self._positions[partition] < end for partition, end in ends.items()):
            batch = self.poll(LONG_POLL_MS / 1_000)
            if batch is not None:
                yield batch if ends is None else _cut(batch, ends[batch.partition])

    def records(self, *, follow: bool = True) -> Iterator[Record]:
        """The records of `batches` one by one. For millions of records, work on the tables instead."""
        for batch in self.batches(follow=follow):
            yield from records_of(batch)

    def end_offsets(self) -> Mapping[int, int]:
        """The present end of each assigned partition. It asks the broker."""
        return {partition: self._admin.offset(self.topic, partition, "end") for partition in self._positions}

    def close(self) -> None:
        """Break off the fetches under way and release threads and sockets. It returns within `close_timeout_s`, even if
        the broker is down or does not answer."""
        self._connection.close()
        self._fetchers.shutdown(wait=False, cancel_futures=True)
        wait([fetch for fetch in self._fetching.values() if not fetch.cancelled()], self._options.close_timeout_s)
        self._admin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _fetch_ahead(self) -> None:
        """Start a fetch for each partition without one."""
        for partition, position in self._positions.items():
            if partition not in self._fetching:
                self._fetching[partition] = self._fetchers.submit(self._fetch, partition, position)

    def _fetch(self, partition: int, position: int) -> Batch:
        query: dict[str, str | int] = {"offset": position, "wait_ms": self._wait_ms}
        if self._options.max_records is not None:
            query["max_records"] = self._options.max_records
        if self._options.max_bytes is not None:
            query["max_bytes"] = self._options.max_bytes
        path = f"{partition_path(self.topic, partition)}/records"
        accept = {"accept": accepting(self._options.compression)}
        return _batch(partition, self._connection.call(Request("GET", path, query=query, headers=accept)))


def records_of(batch: Batch) -> Iterator[Record]:
    """The records of a batch as Python objects."""
    table = batch.records
    for offset, timestamp_ms, key, value, headers in zip(
        table.column("offset").to_numpy().tolist(),
        table.column("timestamp").cast(pa.int64()).to_numpy().tolist(),
        table.column("key").to_pylist(),
        table.column("value").to_pylist(),
        table.column("headers").to_pylist(),
        strict=True,
    ):
        pairs = tuple((header["key"], header["value"]) for header in headers or ())
        yield Record(batch.partition, offset, timestamp_ms, key, value, pairs)


def _check_known(topic: str, assigned: Sequence[int], known: Sequence[int]) -> None:
    for partition in assigned:
        if partition not in known:
            raise Invalid(f"{topic} has no partition {partition}: it has 0 to {len(known) - 1}", field="partition")


def _batch(partition: int, answer: Answer) -> Batch:
    try:
        with pa.ipc.open_stream(pa.py_buffer(answer.body)) as reader:
            records = reader.read_all()
        return Batch(
            partition,
            records,
            next_offset=int(answer.headers["tidelog-next-offset"]),
            high_watermark=int(answer.headers["tidelog-high-watermark"]),
            log_start_offset=int(answer.headers["tidelog-log-start-offset"]),
        )
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise Corrupt("the broker's answer", f"does not have the form in docs/http-api.md ({error})") from error


def _cut(batch: Batch, end: int) -> Batch:
    """`batch` without the records from `end` on."""
    if batch.next_offset <= end:
        return batch
    rows = int(np.searchsorted(batch.records.column("offset").to_numpy(), end))
    return replace(batch, records=batch.records.slice(0, rows), next_offset=end)
