"""The memory of a compaction does not grow with the topic (`memory_peaks`)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
from tests.storage.upkeep.compaction_scenes import RULES, whole_pass
from tests.storage.upkeep.memory_peaks import Peaks, peaks
from tests.storage.upkeep.merge_scenes import add, log_of, segments_of

from tidelog.storage.object_store import ObjectStore
from tidelog.storage.records import HEADERS, RECORD_SCHEMA, TIMESTAMP
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.storage.upkeep.compact import CompactTask
from tidelog.storage.upkeep.rules import UpkeepLimits
from tidelog.storage.upkeep.run_rewrite import Rewriter

MIB = 1 << 20
MEMORY_BYTES = 4 * MIB
SEGMENT_RECORDS = 100_000
FLOOR_BYTES = 48 * MIB
"""A row group of 8 MiB is decoded as a whole, and two of them are held for writing: this much memory is always
needed."""


async def write(store: ObjectStore, records: int) -> int:
    """Write `count` records; about half of the keys occur twice. Return the bytes of all keys."""
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
        await add(store, {0: table})
    return key_bytes


async def peaks_of_a_pass(folder: Path, records: int) -> Peaks:
    store = LocalObjectStore(folder / "store")
    assert await write(store, records) > 2 * MEMORY_BYTES
    with ThreadPoolExecutor(1) as executor, peaks() as found:
        limits = UpkeepLimits(memory_bytes=MEMORY_BYTES)
        task = CompactTask(Rewriter(store, Runtime(), limits, executor, folder / "spill"))
        assert await whole_pass(task, log_of(store), RULES)
    segments = await segments_of(store)
    await store.aclose()
    assert 0.5 * records < sum(segment.records for segment in segments) < 0.75 * records
    return found


async def test_memory_does_not_follow_the_size_of_the_topic(tmp_path: Path) -> None:
    small = await peaks_of_a_pass(tmp_path / "small", 300_000)
    large = await peaks_of_a_pass(tmp_path / "large", 900_000)
    assert large.arrow_bytes < 1.4 * small.arrow_bytes
    assert large.python_bytes < 1.4 * small.python_bytes
    assert large.arrow_bytes + large.python_bytes < FLOOR_BYTES + MEMORY_BYTES
