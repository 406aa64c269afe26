"""A year of events, scaled down: the demo's generator with timestamps that end now and begin a year ago.

Three topics share the events, one for each way of keeping records: `clicks` keeps everything, `sessions` the last 90
days, `profiles` the newest record of each key. The source records what must be found later: a fingerprint of each
partition of `clicks`, the newest value of each key of `profiles`, and how many records each partition got.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from demo.agreement import Fingerprint
from demo.events import EventChunk, EventStream

from tidelog.storage.partitioner import partitions_of

DAY_MS = 86_400_000
EVENT_BYTES = 389
"""Bytes of an event: 376 bytes of JSON and 13 of its key."""
FOLD_EVERY_ROWS = 200_000
MIB = 1 << 20
DELETE_DELAY_MS = 60_000
"""As long as the shortest grace of a broker."""


@dataclass(frozen=True)
class YearTopic:
    """A topic of the year. `share`: of all events."""

    name: str
    share: float
    configs: Mapping[str, str | int | None]
    partitions: int = 2


def year_topics(segment_bytes: int) -> tuple[YearTopic, ...]:
    """The topics; segments, and the time until they are deleted, are scaled down like the year."""
    sized: dict[str, str | int | None] = {"segment.bytes": segment_bytes, "file.delete.delay.ms": DELETE_DELAY_MS}
    return (
        YearTopic("clicks", 0.6, {**sized, "retention.ms": -1}),
        YearTopic("sessions", 0.2, {**sized, "retention.ms": 90 * DAY_MS}),
        YearTopic("profiles", 0.2, {**sized, "cleanup.policy": "compact"}),
    )


@dataclass
class NewestOfKeys:
    """The newest value of each key, merged from time to time; no Python runs per record."""

    rows: int = 0
    _newest: pa.Table | None = None
    _waiting: list[pa.Table] = field(default_factory=list)

    def update(self, keys: pa.Array | pa.ChunkedArray, values: pa.Array | pa.ChunkedArray) -> None:
        """Add the next records; the records of a key are in one partition and so in order."""
        self._waiting.append(pa.table({"key": keys, "value": values}))
        self.rows += len(keys)
        if sum(table.num_rows for table in self._waiting) >= FOLD_EVERY_ROWS:
            self._fold()

    def table(self) -> pa.Table:
        """A table by key."""
        self._fold()
        assert self._newest is not None
        return self._newest

    def _fold(self) -> None:
        tables = [*([self._newest] if self._newest is not None else []), *self._waiting]
        if not tables:
            tables = [pa.table({"key": pa.array([], pa.binary()), "value": pa.array([], pa.binary())})]
        whole = pa.concat_tables(tables)
        numbered = pa.table({"key": whole["key"], "row": np.arange(whole.num_rows)})
        last = numbered.group_by("key").aggregate([("row", "max")])
        self._newest = whole.take(last["row_max"]).sort_by("key").combine_chunks()
        self._waiting = []


class YearSource:
    """Iterate `batches` once, then read the expected results."""

    def __init__(self, gigabytes: float, days: int, seed: int, now_ms: int, topics: tuple[YearTopic, ...]) -> None:
        self.events = max(1, int(gigabytes * 1e9 / EVENT_BYTES))
        self.began_ms = now_ms - days * DAY_MS
        self.topics = topics
        self._stream = EventStream(seed, began_ms=self.began_ms, step_ms=days * DAY_MS / self.events)
        self._turn = np.random.Generator(np.random.PCG64(seed))
        self.records = {topic.name: [0] * topic.partitions for topic in topics}
        self.raw_bytes = {topic.name: 0 for topic in topics}
        self.fingerprints = [Fingerprint() for _ in range(topics[0].partitions)]
        self.newest = NewestOfKeys()
        self._times: dict[str, list[tuple[int, int]]] = {topic.name: [] for topic in topics}
        self.reached_ms = self.began_ms

    def batches(self) -> Iterator[tuple[YearTopic, pa.Table]]:
        """Batch after batch, each for one topic, in the order of time."""
        shares = [topic.share for topic in self.topics]
        for chunk in self._stream.chunks(self.events):
            topic = self.topics[int(self._turn.choice(len(shares), p=shares))]
            self._note(topic, chunk)
            self.reached_ms = chunk.timestamps[-1].cast(pa.int64()).as_py()
            yield topic, pa.table({"key": chunk.keys, "value": chunk.values, "timestamp": chunk.timestamps})

    def younger_than(self, topic: str, kept_ms: int, now_ms: int) -> int:
        """How many records of `topic` are not older than `kept_ms`, except those of the batch that contains the
        limit."""
        return sum(rows for first_ms, rows in self._times[topic] if first_ms >= now_ms - kept_ms)

    def _note(self, topic: YearTopic, chunk: EventChunk) -> None:
        partition_of = partitions_of(pa.chunked_array([chunk.keys]), topic.partitions)
        self.raw_bytes[topic.name] += pc.sum(pc.binary_length(chunk.values)).as_py()
        self.raw_bytes[topic.name] += pc.sum(pc.binary_length(chunk.keys)).as_py()
        for partition in range(topic.partitions):
            rows = np.flatnonzero(partition_of == partition)
            self.records[topic.name][partition] += len(rows)
            if topic is self.topics[0]:
                self.fingerprints[partition].update(chunk.keys.take(rows), chunk.values.take(rows))
        self._times[topic.name].append((chunk.timestamps[0].cast(pa.int64()).as_py(), len(chunk)))
        if topic.configs.get("cleanup.policy") == "compact":
            self.newest.update(chunk.keys, chunk.values)
