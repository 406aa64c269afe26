"""The memory of a compaction does not grow with the partition: peaks of Arrow's pool, numpy and Python. Spill files do
not count, because the system decides how much of them to cache."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from tests.storage.upkeep.compaction_scenes import PLACE, RULES, whole_pass

from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.records import HEADERS, RECORD_SCHEMA, TIMESTAMP
from tidelog.storage.runtime import Runtime, SystemEntropy
from tidelog.storage.segments.segment_codec import encode_segment
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.storage.upkeep.compact import CompactTask
from tidelog.storage.upkeep.rules import UpkeepLimits

MIB = 1 << 20
MEMORY_BYTES = 4 * MIB
SEGMENT_RECORDS = 100_000
FLOOR_BYTES = 48 * MIB
"""A row group of 8 MiB is decoded as a whole, and two of them are held for writing: this much memory is always
needed."""


@dataclass
class Peaks:
    arrow_bytes: int = 0
    python_bytes: int = 0


@contextmanager
def peaks() -> Iterator[Peaks]:
    """Filled in at the end, minus the memory at the beginning."""
    found, before = Peaks(), pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counted)
    tracemalloc.start()
    try:
        yield found
        found.arrow_bytes = counted.max_memory() or 0
        found.python_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)


async def write(store: ObjectStore, records: int) -> int:
    """Write `count` records; about half of the keys occur twice. Return the bytes of all keys."""
    log = ManifestLog(store, PLACE.topic, PLACE.topic_partition)
    manifest = await log.latest()
    chance = np.random.Generator(np.random.PCG64(1))
    key_bytes = 0
    for begin in range(0, records, SEGMENT_RECORDS):
        numbers = chance.integers(0, records, SEGMENT_RECORDS)
        keys = pa.array(np.char.mod("the-key-of-record-%012d", numbers)).cast(pa.binary())
        key_bytes += keys.nbytes
        arrays = [
            pa.array(np.arange(begin, begin + SEGMENT_RECORDS)),
            pa.array(np.full(SEGMENT_RECORDS, 1_000)).cast(TIMESTAMP),
            keys,
            keys,
            pa.nulls(SEGMENT_RECORDS, HEADERS),
        ]
        table = pa.Table.from_arrays(arrays, schema=RECORD_SCHEMA)
        encoded = encode_segment(PLACE.topic, PLACE.topic_partition, table, SystemEntropy().new_id())
        await store.put(encoded.segment.key, encoded.body)
        segments = (*manifest.segments, encoded.segment)
        manifest = await log.append(replace(manifest, cold_end=encoded.segment.next_offset, segments=segments))
    return key_bytes


async def peaks_of_a_pass(folder: Path, records: int) -> Peaks:
    store = LocalObjectStore(folder / "store")
    assert await write(store, records) > 2 * MEMORY_BYTES
    with ThreadPoolExecutor(1) as executor, peaks() as found:
        limits = UpkeepLimits(memory_bytes=MEMORY_BYTES)
        task = CompactTask(store, Runtime(), limits, executor, folder / "spill")
        manifest = await whole_pass(task, ManifestLog(store, PLACE.topic, PLACE.topic_partition), RULES)
    await store.aclose()
    assert manifest is not None
    assert 0.5 * records < sum(segment.records for segment in manifest.segments) < 0.75 * records
    return found


async def test_memory_does_not_follow_the_size_of_the_partition(tmp_path: Path) -> None:
    small = await peaks_of_a_pass(tmp_path / "small", 300_000)
    large = await peaks_of_a_pass(tmp_path / "large", 1_200_000)
    assert large.arrow_bytes < 1.4 * small.arrow_bytes
    assert large.python_bytes < 1.4 * small.python_bytes
    assert large.arrow_bytes + large.python_bytes < FLOOR_BYTES + MEMORY_BYTES
