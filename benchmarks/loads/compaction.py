"""Compact a topic of one partition with many records of fewer keys. Two modes, each in its own process:

--write      writes the segments that archiving and merging would leave
--compact    runs one pass; prints its cost as a JSON object
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.loads.result import own_cpu_seconds
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind, ColdState
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.records import STORED_SCHEMA
from tidelog.storage.runtime import Runtime, SystemEntropy
from tidelog.storage.segments.topic_segment import SEGMENT_FLAVOR, SegmentPlace
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.storage.upkeep.compact import CompactTask
from tidelog.storage.upkeep.rules import UpkeepLimits, UpkeepRules
from tidelog.storage.upkeep.run_merge import pieces_of
from tidelog.storage.upkeep.run_rewrite import Rewriter
from tidelog.storage.upkeep.run_writer import RunShape, RunWriter
from tidelog.storage.upkeep.segment_writer import RunFacts

SEED = 20261121
SEGMENT_RECORDS = 1_000_000
PLACE = SegmentPlace("compacted", "c0" * 16, 0)
RULES = UpkeepRules(compacts=True, deletes=False)


@dataclass(frozen=True)
class Compaction:
    """The cost of one pass. `peak_bytes`: the largest resident size of the process, including the interpreter."""

    records: int
    kept: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_output(cls, output: str) -> Compaction:
        return cls(**json.loads(output.strip().splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--payload", type=Path, required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--memory-mib", type=int, default=128)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--compact", action="store_true")
    options = parser.parse_args()
    store = LocalObjectStore(options.folder / "store")
    if options.write:
        asyncio.run(_write(store, options))
    if options.compact:
        sys.stdout.write(asyncio.run(_compact(store, options)).to_json() + "\n")


async def _write(store: ObjectStore, options: argparse.Namespace) -> None:
    log = ShardLog(store, PLACE.shard, Runtime())
    await log.latest()
    for run, records in enumerate(_tables(options)):
        shape = RunShape(records.num_rows, {0: records.nbytes}, RULES.segment_bytes)
        with closing(RunWriter(PLACE, shape, SEGMENT_FLAVOR, options.folder)) as writer:
            for piece in pieces_of(records):
                writer.write(*piece)
            (encoded,) = writer.finish(SystemEntropy(), RunFacts(run, 0, 1))
        await store.put(encoded.segment.key, encoded.body)
        states = {0: ColdState(cold_end=encoded.segment.spans[0].next_offset)}
        change = TopicChange(PLACE.topic, added=(encoded.segment,), partitions=states)
        await log.append(ManifestChange(ChangeKind.ARCHIVE, {PLACE.topic_id: change}))
    await store.aclose()


def _tables(options: argparse.Namespace) -> Iterator[pa.Table]:
    """Make tables: a random key of 16 bytes for each record; values from the payload file."""
    chance = np.random.Generator(np.random.PCG64(SEED))
    keys = pa.array([b"key-%012d" % number for number in range(options.keys)], pa.binary())
    values = pa.array(options.payload.read_bytes().splitlines(), pa.binary())
    for begin in range(0, options.records, SEGMENT_RECORDS):
        count = min(SEGMENT_RECORDS, options.records - begin)
        arrays = [
            pa.array(np.zeros(count, np.int32)),
            pa.array(np.arange(begin, begin + count)),
            pa.array(1_000 * np.arange(begin, begin + count)).cast(STORED_SCHEMA.field("timestamp").type),
            keys.take(pa.array(chance.integers(0, len(keys), count))),
            values.take(pa.array(chance.integers(0, len(values), count))),
            pa.nulls(count, STORED_SCHEMA.field("headers").type),
        ]
        yield pa.Table.from_arrays(arrays, schema=STORED_SCHEMA)


async def _compact(store: ObjectStore, options: argparse.Namespace) -> Compaction:
    log = ShardLog(store, PLACE.shard, Runtime())
    records = await _records(log, await log.latest())
    with (
        tempfile.TemporaryDirectory(dir=options.folder) as spill_folder,
        ThreadPoolExecutor(1) as executor,
    ):
        limits = UpkeepLimits(memory_bytes=options.memory_mib << 20)
        task = CompactTask(Rewriter(store, Runtime(), limits, executor, Path(spill_folder)))
        began_s, began_cpu_s = time.monotonic(), own_cpu_seconds()
        while manifest := await task.run(PLACE, log, RULES):
            last = manifest
        kept = await _records(log, last)
        seconds, cpu_seconds = time.monotonic() - began_s, own_cpu_seconds() - began_cpu_s
    await store.aclose()
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Compaction(records, kept, seconds, cpu_seconds, peak_bytes)


async def _records(log: ShardLog, manifest: ShardManifest) -> int:
    topic = (await log.with_lists(manifest, [PLACE.topic_id])).topics[PLACE.topic_id]
    return sum(segment.records for segment in topic.segments)


if __name__ == "__main__":
    main()
