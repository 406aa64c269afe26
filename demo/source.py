"""The records that the demo produces, and the results that queries over them must give.

While a source gives its batches, it keeps a fingerprint of each partition, and for each query the exact rows that Spark
must find later. None of this passes through the broker.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from demo.agreement import Column, Fingerprint
from demo.events import CHUNK_EVENTS, COUNTRIES, SERVICES, EventChunk, EventStream
from tidelog.storage.partitioner import partitions_of

EVENT_BYTES = 377
GZIP_RATIO = 10  # a guess; only the archiver's threshold depends on it
FILE_BLOCK_BYTES = 1 << 16
TAIL_PART = 20  # one part in 20 is the hot tail
SERVER_ERROR = 500

Cell: TypeAlias = int | str
Ints: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Query:
    """SQL over the view `records` (Kafka's columns), and the rows that it must give, in this order."""

    title: str
    columns: Sequence[str]
    sql: str
    expected: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class SourceBatch:
    """Records to send. Without `partition`, keys choose it; without `timestamps`, the broker sets them."""

    values: Column
    keys: Column | None = None
    timestamps: Column | None = None
    partition: int | None = None


class EventSource:
    """`events` generated events, each in the partition that Kafka's murmur2 gives its key. Iterate `batches` once, then
    ask for fingerprints and queries."""

    title = "shop and service events from the generator"
    topic = "events"

    def __init__(self, events: int, seed: int, partitions: int) -> None:
        self.raw_bytes = events * EVENT_BYTES
        self.tail_batches = _tail(events, CHUNK_EVENTS)
        self._events = events
        self._stream = EventStream(seed)
        self._partitions = partitions
        self._fingerprints = [Fingerprint() for _ in range(partitions)]
        self._by_service = np.zeros((len(SERVICES), 3), np.int64)
        self._by_country = np.zeros((len(COUNTRIES), 2), np.int64)

    def batches(self) -> Iterator[SourceBatch]:
        for chunk in self._stream.chunks(self._events):
            self._count(chunk)
            partition_of = partitions_of(pa.chunked_array([chunk.keys]), self._partitions)
            for partition in range(self._partitions):
                rows = np.flatnonzero(partition_of == partition)
                self._fingerprints[partition].update(chunk.keys.take(rows), chunk.values.take(rows))
            yield SourceBatch(chunk.values, chunk.keys, chunk.timestamps)

    def fingerprints(self) -> Sequence[Fingerprint]:
        return self._fingerprints

    def queries(self) -> Sequence[Query]:
        return (
            Query(
                "requests by service",
                ("service", "requests", "errors", "duration_us"),
                "SELECT e.service, count(*), count_if(e.request.status >= 500), sum(e.request.duration_us)"
                " FROM (SELECT from_json(cast(value AS string), 'service string,"
                " request struct<status int, duration_us bigint>') AS e FROM records) GROUP BY 1 ORDER BY 1",
                _named_rows(SERVICES, self._by_service),
            ),
            Query(
                "revenue by country",
                ("country", "purchases", "cents"),
                "SELECT e.user.country, count(*), sum(e.amount_cents)"
                " FROM (SELECT from_json(cast(value AS string), 'user struct<country string>, amount_cents bigint')"
                " AS e FROM records) WHERE e.amount_cents > 0 GROUP BY 1 ORDER BY 1",
                _named_rows(COUNTRIES, self._by_country),
            ),
        )

    def _count(self, chunk: EventChunk) -> None:
        services, countries = len(SERVICES), len(COUNTRIES)
        bought = chunk.amount_cents > 0
        self._by_service[:, 0] += np.bincount(chunk.service, minlength=services)
        self._by_service[:, 1] += np.bincount(chunk.service[chunk.status >= SERVER_ERROR], minlength=services)
        self._by_service[:, 2] += _exact_sums(chunk.service, chunk.duration_us, services)
        self._by_country[:, 0] += np.bincount(chunk.country[bought], minlength=countries)
        self._by_country[:, 1] += _exact_sums(chunk.country, chunk.amount_cents, countries)


class FileSource:
    """The lines of a user's file (also .gz): the bytes before each newline are a record, without a key. Blocks of
    lines go to the partitions in turn. Otherwise like `EventSource`."""

    topic = "lines"

    def __init__(self, path: Path, partitions: int) -> None:
        self.title = f"the lines of {path.name}"
        size_bytes = path.stat().st_size
        self.raw_bytes = size_bytes * (GZIP_RATIO if path.suffix == ".gz" else 1)
        self.tail_batches = _tail(size_bytes, FILE_BLOCK_BYTES)
        self._path = path
        self._fingerprints = [Fingerprint() for _ in range(partitions)]
        self._first_words: Counter[str] = Counter()

    def batches(self) -> Iterator[SourceBatch]:
        for turn, lines in enumerate(_line_blocks(self._path)):
            partition = turn % len(self._fingerprints)
            values: Column = pa.array(lines, pa.binary())
            keys: Column = pa.nulls(len(lines), pa.binary())
            self._fingerprints[partition].update(keys, values)
            self._first_words.update(_first_words(lines))
            yield SourceBatch(values, partition=partition)

    def fingerprints(self) -> Sequence[Fingerprint]:
        return self._fingerprints

    def queries(self) -> Sequence[Query]:
        words = sorted(self._first_words.items(), key=lambda item: (-item[1], item[0].encode()))
        return (
            Query(
                "lines and bytes by partition",
                ("partition", "lines", "bytes", "last_offset"),
                "SELECT partition, count(*), sum(length(value)), max(offset) FROM records GROUP BY 1 ORDER BY 1",
                [
                    (partition, print_.records, print_.value_bytes, print_.records - 1)
                    for partition, print_ in enumerate(self._fingerprints)
                    if print_.records
                ],
            ),
            Query(
                "most frequent first words",
                ("word", "lines"),
                "SELECT split(cast(value AS string), ' ')[0], count(*) FROM records"
                " WHERE is_valid_utf8(cast(value AS string)) GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 10",
                words[:10],
            ),
        )


Source: TypeAlias = EventSource | FileSource


def _line_blocks(path: Path) -> Iterator[list[bytes]]:
    """The lines of the file without their newlines, some thousand at a time. The bytes after the last newline are a
    line."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        rest = b""
        while block := file.read(FILE_BLOCK_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            if lines:
                yield lines
        if rest:
            yield [rest]


def _tail(total: int, batch: int) -> int:
    """How many of the last batches are produced after the others have begun to turn cold."""
    return max(1, total // batch // TAIL_PART)


def _first_words(lines: list[bytes]) -> Iterator[str]:
    for line in lines:
        try:
            yield line.decode().split(" ", 1)[0]
        except UnicodeDecodeError:
            continue  # the query also leaves such lines out


def _exact_sums(groups: Ints, numbers: Ints, group_count: int) -> Ints:
    """Sums by group as integers. `bincount` with weights would round them to doubles."""
    sums = np.zeros(group_count, np.int64)
    np.add.at(sums, groups, numbers)
    return sums


def _named_rows(names: Sequence[str], table: Ints) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = [(name, *map(int, row)) for name, row in zip(names, table, strict=True) if row.any()]
    return sorted(rows)
