"""Archive and merge in this process: measures CPU seconds and how often a record is written. The bucket is in memory,
or in a local directory.

(no option)    archives a WAL of full entries, does the same work with pyarrow alone, then merges
--local FOLDER archives a WAL of full entries in a bucket in FOLDER, as a broker with a local store does
--slow-life    a partition that gets few records at a time: one pass for each entry, and all due merges after each pass

It measures CPU, not wall time: the machine may be shared, and archiving costs a broker CPU. Prints a JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.loads.result import own_cpu_seconds
from tidelog.storage.archive.archiver import Archiver, ArchiverSettings
from tidelog.storage.layout import TOPICS_PREFIX, TopicPartition, manifests_prefix
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_values import TopicSegment
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.object_store import ObjectStore, list_all
from tidelog.storage.parquet.parquet_flavor import row_group_rows
from tidelog.storage.records import HEADERS, RECORD_SCHEMA, TIMESTAMP, WAL_SCHEMA
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.upkeep.merge import MergeTask
from tidelog.storage.upkeep.rules import UpkeepLimits, UpkeepRules
from tidelog.storage.upkeep.run_rewrite import Rewriter
from tidelog.storage.upkeep.topic_runs import FINAL_LEVEL, size_of
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_codec import ParquetWalCodec
from tidelog.storage.wal.wal_entry import EntryKind, PreparedEntry, Span, WalHeader

PLACE = SegmentPlace("events", "a0" * 16, 0)
ENTRY_RECORDS = 22_000
"""8 MiB, like the entries of a busy broker."""
SLOW_LIFE = UpkeepRules(segment_bytes=2 * 1024 * 1024)
BEGAN_MS = 1_760_000_000_000

Values: TypeAlias = "pa.Array[Any]"


@dataclass(frozen=True)
class Speed:
    """`raw_bytes`: of keys and values, about. CPU: seconds of each round. Stored bytes: before and after merging."""

    raw_bytes: int
    archive_cpu_s: tuple[float, ...]
    pyarrow_cpu_s: tuple[float, ...]
    merge_cpu_s: float
    archived_stored_bytes: int
    merged_stored_bytes: int

    @classmethod
    def from_output(cls, output: str) -> Speed:
        return cls(**json.loads(output.strip().splitlines()[-1]))


@dataclass(frozen=True)
class LocalSpeed:
    """`raw_bytes`: of keys and values, about. CPU: seconds of each round, with those of reads, writes and syncs."""

    raw_bytes: int
    archive_cpu_s: tuple[float, ...]

    @classmethod
    def from_output(cls, output: str) -> LocalSpeed:
        return cls(**json.loads(output.strip().splitlines()[-1]))


@dataclass(frozen=True)
class SlowLife:
    """`written_bytes`: raw, by the archiver and all merges. `small_segments`: the most non-final segments at once."""

    raw_bytes: int
    written_bytes: int
    passes: int
    final_segments: int
    small_segments: int

    @classmethod
    def from_output(cls, output: str) -> SlowLife:
        return cls(**json.loads(output.strip().splitlines()[-1]))


class Bench:
    """One partition in a bucket, archived and merged in one thread, each time by new workers."""

    def __init__(self, store: ObjectStore, spill_folder: Path, executor: Executor, batch_bytes: int) -> None:
        self.store = store
        self.log = ShardLog(store, PLACE.shard, Runtime())
        self.wal = Wal(store, PLACE.shard, ParquetWalCodec(), self.log)
        settings = ArchiverSettings(batch_bytes=batch_bytes)
        self.archiver = Archiver(store, self.wal, self.log, Runtime(), lambda _: PLACE.topic, settings, executor)
        self.merger = MergeTask(Rewriter(store, Runtime(), UpkeepLimits(), executor, spill_folder))

    async def fill(self, values: Values, records: int, entry_records: int) -> None:
        """Write the log, with the given number of records in each entry."""
        for seq, first in enumerate(range(0, records, entry_records)):
            count = min(entry_records, records - first)
            span = Span(TopicPartition(PLACE.topic_id, 0), first, count, 0)
            header = WalHeader(EntryKind.RECORDS, 0, seq, 1, "bench", f"{seq:032x}", BEGAN_MS, (span,), ())
            table = _wal_table(values, first, count)
            await self.wal.create(PreparedEntry(header, ParquetWalCodec().encode(header, table)))

    async def archive(self) -> int:
        """Run one pass; return the raw bytes it wrote."""
        report = await self.archiver.run_once()
        return report.raw_bytes if report else 0

    async def merge(self, rules: UpkeepRules) -> int:
        """Merge until nothing is due; return the raw bytes written."""
        written, known = 0, {segment.key for segment in await self.segments()}
        while await self.merger.run(PLACE, self.log, rules):
            segments = await self.segments()
            written += sum(segment.raw_bytes for segment in segments if segment.key not in known)
            known = {segment.key for segment in segments}
        return written

    async def topic(self) -> TopicState:
        """The topic in the newest version."""
        manifest = await self.log.with_lists(await self.log.latest(), [PLACE.topic_id])
        return manifest.topics[PLACE.topic_id]

    async def segments(self) -> list[TopicSegment]:
        return list((await self.topic()).segments)


async def speed(options: argparse.Namespace, values: Values, spill_folder: Path, executor: Executor) -> Speed:
    """Run archiving and pyarrow in turn, one more time than is counted, then one merge."""
    store = MemoryObjectStore()
    archive_cpu_s, pyarrow_cpu_s = [], []
    for turn in range(options.rounds + 1):
        bench = Bench(store, spill_folder, executor, ArchiverSettings().batch_bytes)
        if turn == 0:
            await bench.fill(values, options.records, ENTRY_RECORDS)
        archive_cpu_s.append(await _archive_cpu_s(bench))
        archived = await bench.segments()
        pyarrow_cpu_s.append(await _pyarrow_cpu_s(bench, max(segment.records for segment in archived)))
    began_s = own_cpu_seconds()
    await bench.merge(UpkeepRules(segment_bytes=min(segment.size_bytes for segment in archived)))
    return Speed(
        raw_bytes=sum(segment.raw_bytes for segment in archived),
        archive_cpu_s=tuple(archive_cpu_s[1:]),
        pyarrow_cpu_s=tuple(pyarrow_cpu_s[1:]),
        merge_cpu_s=own_cpu_seconds() - began_s,
        archived_stored_bytes=sum(segment.size_bytes for segment in archived),
        merged_stored_bytes=size_of((await bench.topic()).segments),
    )


async def local_speed(
    options: argparse.Namespace, values: Values, spill_folder: Path, executor: Executor
) -> LocalSpeed:
    """Archive the same log once more than is counted."""
    store = LocalObjectStore(options.local)
    bench = Bench(store, spill_folder, executor, ArchiverSettings().batch_bytes)
    await bench.fill(values, options.records, ENTRY_RECORDS)
    archive_cpu_s = []
    for _ in range(options.rounds + 1):
        bench = Bench(store, spill_folder, executor, ArchiverSettings().batch_bytes)
        archive_cpu_s.append(await _archive_cpu_s(bench))
    raw_bytes = sum(segment.raw_bytes for segment in await bench.segments())
    await store.aclose()
    return LocalSpeed(raw_bytes, tuple(archive_cpu_s[1:]))


async def _archive_cpu_s(bench: Bench) -> float:
    """CPU seconds of archiving the whole log, from its beginning."""
    await _forget_segments(bench.store)
    began_s = own_cpu_seconds()
    while await bench.archive():
        pass
    return own_cpu_seconds() - began_s


async def _forget_segments(store: ObjectStore) -> None:
    """Reset the shard to the state before archiving."""
    keys = [info.key async for info in list_all(store, "")]
    for key in keys:
        if key.startswith((TOPICS_PREFIX, manifests_prefix(PLACE.shard))):
            await store.delete(key)


async def _pyarrow_cpu_s(bench: Bench, segment_records: int) -> float:
    """CPU seconds of pyarrow alone for the same work: read the entries, write segments with the same layout."""
    entries = [(await bench.store.get(info.key)).data async for info in list_all(bench.store, "wal/0000/0")]
    began_s = own_cpu_seconds()
    tables = [pq.read_table(pa.BufferReader(data), use_threads=False) for data in entries]
    records = pa.concat_tables(tables).select(RECORD_SCHEMA.names)
    for first in range(0, records.num_rows, segment_records):
        segment = records.slice(first, segment_records)
        pq.write_table(
            segment,
            pa.BufferOutputStream(),
            row_group_size=row_group_rows(segment),
            compression="zstd",
            compression_level=3,
            use_dictionary=False,
            column_encoding={
                "offset": "DELTA_BINARY_PACKED",
                "timestamp": "DELTA_BINARY_PACKED",
                "value": "DELTA_LENGTH_BYTE_ARRAY",
            },
            write_page_index=True,
            write_page_checksum=True,
        )
    return own_cpu_seconds() - began_s


async def slow_life(options: argparse.Namespace, values: Values, spill_folder: Path, executor: Executor) -> SlowLife:
    """Each pass makes a segment of about 5 KB; a final segment has 2 MiB."""
    bench = Bench(MemoryObjectStore(), spill_folder, executor, batch_bytes=1)
    await bench.fill(values, options.records, entry_records=100)
    written_bytes = passes = small_segments = 0
    while raw_bytes := await bench.archive():
        passes += 1
        written_bytes += raw_bytes + await bench.merge(SLOW_LIFE)
        small = [one for one in await bench.segments() if one.level < FINAL_LEVEL]
        small_segments = max(small_segments, len(small))
    segments = await bench.segments()
    return SlowLife(
        raw_bytes=sum(segment.raw_bytes for segment in segments),
        written_bytes=written_bytes,
        passes=passes,
        final_segments=len(segments) - len(small),
        small_segments=small_segments,
    )


def _wal_table(values: Values, first: int, count: int) -> pa.Table:
    offsets = np.arange(first, first + count)
    arrays = [
        pa.array(np.zeros(count, np.int32)),
        pa.array(offsets),
        pa.array(BEGAN_MS + offsets // 10).cast(TIMESTAMP),
        pa.nulls(count, pa.binary()),
        values.take(pa.array(offsets % len(values))),
        pa.nulls(count, HEADERS),
    ]
    return pa.Table.from_arrays(arrays, schema=WAL_SCHEMA)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--payload", type=Path, required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slow-life", action="store_true")
    parser.add_argument("--local", type=Path)
    options = parser.parse_args()
    values = pa.array(options.payload.read_bytes().splitlines(), pa.binary())
    pa.set_cpu_count(1)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as executor:
        print(json.dumps(asdict(asyncio.run(_load(options)(options, values, Path(folder), executor)))))


def _load(options: argparse.Namespace) -> Callable[..., Coroutine[None, None, Speed | LocalSpeed | SlowLife]]:
    if options.local:
        return local_speed
    return slow_life if options.slow_life else speed


if __name__ == "__main__":
    main()
