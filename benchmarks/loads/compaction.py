"""Compact one partition with many records of fewer keys. Two modes, each in its own process:

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
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.loads.result import own_cpu_seconds
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.manifest import Manifest
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.records import HEADERS, RECORD_SCHEMA, TIMESTAMP
from tidelog.storage.runtime import Runtime, SystemEntropy
from tidelog.storage.segments.segment_codec import encode_segment
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.storage.upkeep.compact import CompactTask
from tidelog.storage.upkeep.rules import UpkeepLimits, UpkeepRules
from tidelog.storage.upkeep.task import Place

SEED = 20261121
SEGMENT_RECORDS = 1_000_000
PLACE = Place("compacted", TopicPartition("c0" * 16, 0))
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
    log = ManifestLog(store, PLACE.topic, PLACE.topic_partition)
    manifest = await log.latest()
    for records in _tables(options):
        encoded = encode_segment(PLACE.topic, PLACE.topic_partition, records, SystemEntropy().new_id())
        await store.put(encoded.segment.key, encoded.body)
        segments = (*manifest.segments, encoded.segment)
        manifest = await log.append(replace(manifest, cold_end=encoded.segment.next_offset, segments=segments))
    await store.aclose()


def _tables(options: argparse.Namespace) -> Iterator[pa.Table]:
    """Make tables: a random key of 16 bytes for each record; values from the payload file."""
    chance = np.random.Generator(np.random.PCG64(SEED))
    keys = pa.array([b"key-%012d" % number for number in range(options.keys)], pa.binary())
    values = pa.array(options.payload.read_bytes().splitlines(), pa.binary())
    for begin in range(0, options.records, SEGMENT_RECORDS):
        count = min(SEGMENT_RECORDS, options.records - begin)
        arrays = [
            pa.array(np.arange(begin, begin + count)),
            pa.array(np.arange(begin, begin + count)).cast(TIMESTAMP),
            keys.take(pa.array(chance.integers(0, len(keys), count))),
            values.take(pa.array(chance.integers(0, len(values), count))),
            pa.nulls(count, HEADERS),
        ]
        yield pa.Table.from_arrays(arrays, schema=RECORD_SCHEMA)


async def _compact(store: ObjectStore, options: argparse.Namespace) -> Compaction:
    log = ManifestLog(store, PLACE.topic, PLACE.topic_partition)
    records = _records(await log.latest())
    with (
        tempfile.TemporaryDirectory(dir=options.folder) as spill_folder,
        ThreadPoolExecutor(1) as executor,
    ):
        limits = UpkeepLimits(memory_bytes=options.memory_mib << 20)
        task = CompactTask(store, Runtime(), limits, executor, Path(spill_folder))
        began_s, began_cpu_s = time.monotonic(), own_cpu_seconds()
        while manifest := await task.run(PLACE, log, RULES):
            last = manifest
        seconds, cpu_seconds = time.monotonic() - began_s, own_cpu_seconds() - began_cpu_s
    await store.aclose()
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Compaction(records, _records(last), seconds, cpu_seconds, peak_bytes)


def _records(manifest: Manifest) -> int:
    return sum(segment.records for segment in manifest.segments)


if __name__ == "__main__":
    main()
